// What the studio's modules ask of a page when they are loaded. Tests import it before those modules.

globalThis.addEventListener ??= () => {};
const { setTimeout } = globalThis;
globalThis.setTimeout = (...how) => setTimeout(...how).unref(); // what is stored later holds up no test
