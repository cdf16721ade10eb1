// Files become stories or lore: by the button Import, or dropped on the page.

import { addLore, adopt } from "../story/library.js";
import { fail } from "../story/session.js";
import { bringBack } from "./backup.js";
import { fromFile } from "./exchange.js";

/** Opens the story of a file, or adds what else it has; a file of another kind is reported. */
export async function importFile(file) {
  try {
    const found = await fromFile(file);
    if (Array.isArray(found)) await bringBack(found);
    else if ("lore" in found) await addLore(found);
    else await adopt(found);
  } catch (error) {
    fail(error);
  }
}

const hasFiles = ({ dataTransfer }) => dataTransfer?.types.includes("Files");

/** Imports what is dropped anywhere on the page. Browsers by themselves do nothing, or leave the page for the
    file. */
export function takeDrops() {
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", async (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    for (const file of [...(event.dataTransfer?.files ?? [])]) await importFile(file);
  });
}
