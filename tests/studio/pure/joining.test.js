// Where a chosen text meets the text around it: the space behind it, and its quotation marks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gapBehind } from "#studio/candidates/joining.js";
import { marksOf, quotedLike } from "#studio/candidates/quotes.js";

/** What stands before, what is put in, what stands behind, and the whole. */
const JOINTS = [
  ["She saw ", "a", "Then she left.", "She saw a Then she left."],
  ["She ran.", " It rained.", "Then she left.", "She ran. It rained. Then she left."],
  ["She ran.", " Hi!”", "“Who?” he said.", "She ran. Hi!” “Who?” he said."],
  ["A", " dog", "(or two)", "A dog (or two)"],
  ["A", " dog", " and a cat", "A dog and a cat"],
  ["A", " dog", ", a cat", "A dog, a cat"],
  ["A", " dog", "’s tail", "A dog’s tail"],
  ["A", " dog", "'s tail", "A dog's tail"],
  ["A", " dog", ".\n", "A dog.\n"],
  ["A", " dog\n", "The cat", "A dog\nThe cat"],
  ["A", " dog—", "the cat", "A dog—the cat"],
  ["A", " well-", "known dog", "A well-known dog"],
  ["a little gi", "r", "l ran", "a little girl ran"],
  ["a little gi", "rl ran to a", "nd", "a little girl ran to a nd"],
  ["don", "", "’t", "don’t"],
  ["It cost 3", ".", "14", "It cost 3.14"],
  ["彼は", "本を", "読んだ", "彼は本を読んだ"],
  ["他", "走了。", "她来了", "他走了。她来了"],
  ["他", "说 yes", "她来了", "他说 yes她来了"],
  ["เขา", "กิน", "ข้าว", "เขากินข้าว"],
  ["그는", " 갔다.", "그녀는", "그는 갔다. 그녀는"],
  ["Он", " ушёл.", "«Стой!»", "Он ушёл. «Стой!»"],
  ["Er sagte: ", "„Ja“", "sie ging", "Er sagte: „Ja“ sie ging"],
  ['He said "', "", "Hello", 'He said "Hello'],
  ["a fox. ", "It was cute.", "*Then* she slept.", "a fox. It was cute. *Then* she slept."],
  ["", "It was *late*", "she slept", "It was *late* she slept"],
  ["She was *very", " tired", "* and slept", "She was *very tired* and slept"],
  ["a lot, ", "all of it", "£5 in all", "a lot, all of it £5 in all"],
  ["at him ", "and went to", "😀", "at him and went to 😀"],
  ["a fox. ", "It was cute.", "— Then", "a fox. It was cute. — Then"],
  ["She knew", " it", "'twas late", "She knew it 'twas late"],
  ["a ", "list", "#1 @bob", "a list #1 @bob"],
  ["so ", "it went.", "\\*Then", "so it went. \\*Then"],
  ["half of 3", "0", "% of it", "half of 30% of it"],
];

test("a space that is missing behind a text is added, and no other one", () => {
  for (const [before, text, behind, whole] of JOINTS)
    assert.equal(before + text + gapBehind(before, text, behind) + behind, whole);
});

test("with a space on either side none is added", () => {
  for (const [before, text, behind] of JOINTS)
    for (const space of [" ", "\n", "\u00a0", "\t"]) {
      assert.equal(gapBehind(before, text + space, behind), "");
      assert.equal(gapBehind(before, text, space + behind), "");
    }
});

const PLAIN = `"Don't," she said. "Wait—" He ran. "It's 5'10"? 'Yes,' he said," said Ann.`;

/** A story's text, a candidate, its language, and what it becomes. */
const QUOTES = [
  ["“Hi.”", ` "Don't," she said.`, "", " “Don’t,” she said."],
  ["“Hi,” she said. “I", `'m here," she said.`, "", "’m here,” she said."],
  ["“Wait", `—" He ran.`, "", "—” He ran."],
  ["“Hi.”", ` "Wait—" He ran.`, "", " “Wait—” He ran."],
  [
    "“Hi.”",
    ` "He said 'no' and 'never again,'" she said.`,
    "",
    " “He said ‘no’ and ‘never again,’” she said.",
  ],
  ["It’s late.", ' "Yes."', "en-GB", " “Yes.”"],
  ["C’est tard.", ' "Oui."', "fr", " «Oui.»"],
  ["« Non. »", ' "Oui."', "fr", " « Oui. »"],
  ["„Nein.“", ` "Ja. 'So?' Gut."`, "", " „Ja. ‚So?‘ Gut.“"],
  ["„Nie.”", ' "Tak."', "", " „Tak.”"],
  ["»Nein.«", ' "Ja."', "", " »Ja.«"],
  ["”Nej.”", ' "Ja," sa han.', "", " ”Ja,” sa han."],
  ['"Hi."', " “Don’t,” she said.", "", ` "Don't," she said.`],
  ['"Non."', " « Oui. »", "", ' "Oui."'],
  ['"Nein."', " „Ja, ‚gut‘.“", "", ` "Ja, 'gut'."`],
  ["She said nothing.", ` “Yes” and "no".`, "fr", ` “Yes” and "no".`],
  ["“Hi.” It's late.", ` "It's."`, "", ` “It's.”`],
];

test("a text gets the marks that its story has", () => {
  for (const [all, text, lang, expected] of QUOTES) assert.equal(quotedLike(text, all, all, lang), expected);
});

test("marks that are made curly and straight again are the same, and nothing else changes", () => {
  for (const form of ["“a”’", "„a“’", "„a”’", "«a»’", "»a«’", "”a”’"]) {
    const curly = quotedLike(PLAIN, form, "");
    assert.notEqual(curly, PLAIN);
    assert.equal(quotedLike(curly, form, ""), curly);
    assert.equal(quotedLike(curly, `"a" it's`, ""), PLAIN);
  }
});

/** A text, its language, and the quotation marks that it has. */
const MARKS = [
  ["", "", "“ ” ‘ ’"],
  ["", "de-CH", "„ “ ‚ ‘"],
  ["It's late.", "de", "\" \" ' '"],
  ['She said "no".', "de", "\" \" ' '"],
  ["«\u00a0Non.\u00a0»", "", "«_ _» ‘ ’"],
  ["»Nein.«", "", "» « ‘ ’"],
  ["”Nej.”", "sv", "” ” ’ ’"],
];

test("a quotation gets the marks that a text has, else those of its language", () => {
  for (const [text, lang, marks] of MARKS)
    assert.equal(marksOf(text, lang).flat().join(" ").replaceAll("\u00a0", "_"), marks, text);
});
