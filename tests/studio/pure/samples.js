// Files of other tools in the forms that these tools' public sources read and write. The texts are ours.

import { readFileSync } from "node:fs";

/** Obsidian Loom exports the state of a note: nodes by id, each with its parent's id. */
const loomNode = (text, parentId, fields) => ({
  text,
  parentId,
  collapsed: false,
  unread: false,
  bookmarked: false,
  searchResultState: null,
  ...fields,
});

export const LOOM = {
  hoisted: [],
  searchTerm: "",
  generating: null,
  current: "c3d1",
  nodes: {
    a1f0: loomNode("The lamp went out.", null, { lastVisited: 1697000000000 }),
    b2e9: loomNode(" Nobody spoke.", "a1f0", { unread: true }),
    c3d1: loomNode(" Mara laughed.", "a1f0", { bookmarked: true, lastVisited: 1697000000001 }),
    d4c8: loomNode(" Then the door", "c3d1", { unread: true, collapsed: true }),
  },
};

/** mikupad's prompt is a list of pieces, which are marked as the writer's or are tokens with alternatives. */
const mikupadPiece = (content, ...likely) => {
  const probs = likely.map(([tok_str, prob]) => ({ tok_str, prob }));
  return { content, prob: probs[0].prob, completion_probabilities: [{ content, probs }] };
};

const SESSION = {
  name: "The lamp",
  temperature: 0.7,
  endpoint: "http://127.0.0.1:8080",
  prompt: [
    { type: "user", content: "The lamp went" },
    mikupadPiece(" out", [" out", 0.9], [" dim", 0.05]),
    mikupadPiece(".", [".", 0.7], [",", 0.2]),
    { type: "user", content: " Mara" },
  ],
};

/** A session, each property of which is JSON in a string. */
export const MIKUPAD = Object.fromEntries(
  Object.entries(SESSION).map(([name, value]) => [name, JSON.stringify(value)]),
);

export const LOREBOOK = {
  lorebookVersion: 5,
  settings: { orderByKeyLocations: false },
  categories: [],
  entries: [
    {
      text: "The harbour is closed in winter.",
      contextConfig: { tokenBudget: 300, budgetPriority: 400, insertionPosition: -1 },
      displayName: "Harbour",
      id: "4f1",
      keys: ["harbour", "/doc?ks/i"],
      searchRange: 2000,
      enabled: true,
      forceActivation: false,
    },
    { text: "Mara is a smith.", displayName: "Mara", keys: [], enabled: true, forceActivation: true },
    { text: "Not used.", displayName: "Off", keys: ["x"], enabled: false },
  ],
};

export const KOBOLD = {
  gamestarted: true,
  prompt: "The lamp went out.",
  memory: "A dark house.",
  authorsnote: "Be slow.",
  anotetemplate: "[Author's note: <|>]",
  actions: [" Mara laughed.", "{{[INPUT]}}Nobody spoke."],
  actions_metadata: {},
  worldinfo: [
    {
      key: "Mara, smith",
      keysecondary: "",
      keyanti: "",
      content: "Mara is a smith.",
      comment: "Mara",
      folder: null,
      selective: false,
      constant: false,
      probability: 100,
    },
  ],
  wifolders_d: {},
  wifolders_l: [],
  anotestr: 320,
};

/** Lore that SillyTavern wrote: tests/clients/capture/world_info.py. */
export const [WORLD, CHARACTER] = ["world", "character"].map((kind) =>
  JSON.parse(readFileSync(new URL(`../sillytavern_${kind}.json`, import.meta.url), "utf8")),
);
