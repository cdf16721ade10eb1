// Fonts of signs: Word and others write a sign of Symbol or Wingdings as a number within that font, as often
// one of Unicode's private use area. Here are the signs that have a character of their own.

/** Signs by their numbers. A part begins with the number of its first sign, the others follow.
    @type {(parts: string) => Map<number, string>} */
const table = (parts) =>
  new Map(
    parts
      .split(/\s+/)
      .flatMap((part) =>
        [...part.slice(2)].map((sign, i) => /** @type {const} */ ([Number.parseInt(part, 16) + i, sign])),
      ),
  );

/** @type {Record<string, Map<number, string>>} */
const FONTS = {
  symbol: table(
    "22∀ 24∃ 27∋ 2a∗ 2d− 40≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ 5c∴ 5e⊥ 60‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ 7e∼ " +
      "a0€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊⟨®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪ " +
      "f1⟩∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭",
  ),
  wingdings: table(
    "22✂✁ 28☎✆✉ 36⌛ 3e✇✍ 41✌👌👍👎☜☞☝☟ 4a☺😐☹💣☠ 51✈☼ 54❄ 56✞ 58✠✡☪☯ 5d☸♈♉♊♋♌♍♎♏♐♑♒♓ 6c● 6e■□ " +
      "71❑❒ 74⧫◆❖⬥⌧ 7a⌘ 7d❝❞ 81➀➁➂➃➄➅➆➇➈➉ 8c➊➋➌➍➎➏➐➑➒➓ 9e·• a1○ a4◉◎ a7▪◻ aa✦★✶✴✹✵ b5✪✰🕐🕑🕒🕓🕔🕕🕖🕗🕘🕙🕚🕛 " +
      "d5⌫⌦ d8➢ df←→↑↓↖↗↙↘ e8➔ ef⇦⇨⇧⇩⬄⇳ fb✗✓☒☑",
  ),
};
const LATIN = /^[ -~]$/; // which Symbol has at the places of ASCII, but for its own signs

/** The font of signs that a list of fonts names first; "" is another font.
    @type {(fonts: string) => string} */
export function signFontOf(fonts) {
  const name = fonts.split(",")[0].replaceAll(/["']/g, "").trim().toLowerCase();
  return name in FONTS ? name : "";
}

/** The character of a sign; undefined if none is known.
    @type {(font: string, code: number) => string | undefined} */
function signOf(font, code) {
  const latin = String.fromCharCode(code);
  return FONTS[font]?.get(code) ?? (font === "symbol" && LATIN.test(latin) ? latin : undefined);
}

/** A text in a font of signs, which `signFontOf` has named: what is not known stays as it is. `isWhole`: all
    its characters are of that font, not only those of the private use area.
    @type {(text: string, font?: string, isWhole?: boolean) => string} */
export function inSigns(text, font = "", isWhole = false) {
  if (!FONTS[font]) return text;
  const own = isWhole ? /[!-\u00ff\uf020-\uf0ff]/g : /[\uf020-\uf0ff]/g;
  return text.replaceAll(own, (one) => signOf(font, one.charCodeAt(0) & 0xff) ?? one);
}
