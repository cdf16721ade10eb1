// What the studio's modules ask of a page when they are loaded. Tests import it before those modules.

globalThis.addEventListener ??= () => {};
