// The clipboard: a copy has its emphasis as HTML, too; what is pasted from another program keeps its emphasis
// and its headings, and nothing else of its looks. Shift+Ctrl+V pastes plain text: the browser then gives no
// HTML.

import { marksOf } from "../candidates/quotes.js";
import { shownIn } from "../files/emphasis.js";
import { fromClipboard, toHtml } from "../files/html.js";
import { textWithin } from "../files/paragraphs.js";
import { session } from "../story/session.js";
import { copied } from "../story/tree.js";
import { EditorView } from "../vendor/codemirror.js";

const OWN = "application/x-llama-srb"; // beside our copies, whose text has its marks already
const HAS_MARKS = /["'“”„«»‘’]/;
/** @type {Record<string, string>} */
const SIGNS = { strong: "**", em: "*" };

/** The signs of the emphasis in whose midst a place is: `isEnd` of a selection, or its begin.
    @type {(doc: any, place: number, isEnd: boolean) => string} */
function signsAt(doc, place, isEnd) {
  const { from, text } = doc.lineAt(place);
  const at = place - from - (isEnd ? 1 : 0); // the character that is selected
  const around = shownIn(text).filter(([kind, begin, end]) => SIGNS[kind] && begin <= at && at < end);
  return around.map(([kind]) => SIGNS[kind]).join("");
}

/** What is selected, with the signs of an emphasis that begins before it or ends behind it.
    @type {(state: any) => string} */
function whole({ doc, selection: { main } }) {
  const text = doc.sliceString(main.from, main.to);
  const words = text.trim();
  if (!words) return text;
  const [open, close] = [signsAt(doc, main.from, false), signsAt(doc, main.to, true)];
  const begin = text.length - text.trimStart().length;
  return text.slice(0, begin) + open + words + close + text.slice(begin + words.length);
}

/** Copies what is selected; without a selection nothing, where CodeMirror would copy the line.
    @type {(event: ClipboardEvent, view: any) => boolean} */
function copy(event, view) {
  const { main } = view.state.selection;
  if (main.empty || !event.clipboardData) return true;
  event.preventDefault();
  event.clipboardData.setData("text/plain", view.state.sliceDoc(main.from, main.to));
  event.clipboardData.setData("text/html", toHtml(whole(view.state)));
  event.clipboardData.setData(OWN, "1");
  if (event.type === "cut") view.dispatch(view.state.replaceSelection(""), { userEvent: "delete.cut" });
  return true;
}

/** @type {(event: ClipboardEvent, view: any) => boolean} */
function paste(event, view) {
  const { clipboardData: data } = event;
  const html = data?.types.includes(OWN) ? "" : data?.getData("text/html");
  const { doc, selection } = view.state;
  const all = doc.toString();
  // A story without quotation marks takes those of what is pasted.
  const marks = HAS_MARKS.test(all) ? marksOf(all, session.story.lang) : undefined;
  const paragraphs = html ? fromClipboard(html, marks) : [];
  if (!paragraphs.some(({ runs }) => runs.length)) return false; // CodeMirror pastes the plain text
  event.preventDefault();
  const [begin, end] = [doc.lineAt(selection.main.from), doc.lineAt(selection.main.to)];
  const text = textWithin(
    paragraphs,
    begin.text.slice(0, selection.main.from - begin.from),
    end.text.slice(selection.main.to - end.from),
    blanksOf(data?.getData("text/plain") ?? ""),
  );
  view.dispatch(view.state.replaceSelection(view.state.toText(copied(text.replaceAll("\r", "")))), {
    userEvent: "input.paste",
    scrollIntoView: true,
  });
  return true;
}

/** The spaces around words that the plain text has, and HTML has not.
    @type {(plain: string) => string[]} */
const blanksOf = (plain) => [/^ */.exec(plain)?.[0] ?? "", / *$/.exec(plain)?.[0] ?? ""];

export const clipboard = EditorView.domEventHandlers({ copy, cut: copy, paste });
