// Schemas as zod writes them: `node zod_models.mjs zod3` with zod-to-json-schema, or `zod4` with its own writer.
const [, , version] = process.argv;
const isOld = version === "zod3";
const { z } = await import(isOld ? "zod3" : "zod");

const Address = z.object({
  street: z.string(),
  zip: z.string().regex(/^[A-Z]{3}-\d{2,4}$/),
  floor: z.number().int().min(-3).nullable().optional(),
});
const Color = z.enum(["red", "green", "dark blue"]);
const Level = z.union([z.literal(1), z.literal(5), z.literal(10)]);
const Cat = z.object({ kind: z.literal("cat"), lives: z.number().int().default(9) });
const Dog = z.object({ kind: z.literal("dog"), name: z.string() });
const Bird = z.object({ kind: z.enum(["bird", "parrot"]), words: z.array(z.string()).default([]) });
const Tree = z.object({
  value: z.number().int(),
  left: z.lazy(() => Tree).nullable().optional(),
  children: z.array(z.lazy(() => Tree)).optional(),
});
const Lines = z.object({ text: z.string(), count: z.number().int().default(1) });

const MODELS = {
  Person: z.object({
    name: z.string().min(1).max(20).describe("As others call them"),
    age: z.number().int().gte(0).lt(150),
    email: z.string().email().nullable().optional(),
    tags: z.array(z.string()).default([]),
    is_alive: z.boolean().default(true),
  }),
  Home: z.object({
    main: Address.describe("Where letters go"),
    other: Address.nullable().optional(),
    color: Color.default("red"),
    by_name: z.record(z.string(), Address).default({}),
  }),
  Settings: z.object({
    color: Color,
    level: Level.default(1),
    mode: z.union([z.literal("draft"), z.literal("final"), z.literal(3), z.null()]),
    only: z.literal("x").default("x"),
  }),
  Zoo: z.object({
    star: z.discriminatedUnion("kind", [Cat, Dog, Bird]),
    others: z.array(z.union([Cat, Dog])),
  }),
  Tree,
  When: z.object({
    day: isOld ? z.string().date() : z.iso.date(),
    at: isOld ? z.string().time() : z.iso.time(),
    moment: isOld ? z.string().datetime() : z.iso.datetime({ offset: true }),
    lasts: isOld ? z.string().duration() : z.iso.duration(),
    id: z.string().uuid(),
    home: z.string().url(),
    address: isOld ? z.string().ip({ version: "v4" }) : z.ipv4(),
  }),
  Maps: z.object({
    counts: z.record(z.string(), z.number().int()),
    lists: z.record(z.string(), z.array(z.number())).default({}),
    levels: z.record(z.string(), Color.nullable()),
    inner: z.record(z.string().min(1).max(9), z.record(z.string(), z.boolean())).optional(),
  }),
  Tuples: z.object({
    pair: z.tuple([z.number().int(), z.string()]),
    many: z.array(z.number().int()),
    pairs: z.array(z.tuple([z.string(), z.number()])).default([]),
    three: z.array(z.number().int()).min(1).max(3),
    rest: z.tuple([z.boolean()]).rest(z.string()).optional(),
  }),
  Numbers: z.object({
    ratio: z.number().gt(0).lte(1),
    even: z.number().int().multipleOf(2).gte(0).lte(1000),
    price: z.number(),
    below: z.number().negative().default(-0.5),
    any: z.number().default(1.5),
  }),
  Scalars: z.object({
    either: z.union([z.number().int(), z.string(), z.array(z.boolean())]),
    maybe: z.union([z.string(), z.null(), z.number()]).optional(),
    anything: z.any(),
    nothing: z.null().optional(),
    data: z.record(z.string(), z.unknown()).default({}),
  }),
  Names: z
    .object({
      "first name": z.string(),
      $ref: z.number().int().optional(),
      größe: z.number().int().optional(),
      'a "quoted" \\ name': z.number().int().optional(),
    })
    .strict(),
  Order: Lines.extend({
    id: z.string().uuid(),
    items: z.array(Lines).min(1),
    payment: z.union([Cat, Address, z.string()]),
    note: z.string().max(10).default(""),
  }),
  Both: z.intersection(Lines, z.object({ note: z.string().max(10) })),
  Texts: z.object({
    starts: z.string().startsWith("ab"),
    ends: z.string().endsWith("yz"),
    holds: z.string().includes("mn"),
    exact: z.string().length(4),
  }),
  Open: z.object({ name: z.string() }).catchall(z.number()),
};

if (isOld) {
  MODELS.Sets = z.object({ colors: z.set(Color), modes: z.set(z.enum(["a", "b"])).optional() });
  MODELS.FreeSets = z.object({ numbers: z.set(z.number().int()) });
}
const { zodToJsonSchema } = await import("zod-to-json-schema");
const written = (model) => (isOld ? zodToJsonSchema(model) : z.toJSONSchema(model));
for (const [model, type] of Object.entries(MODELS))
  console.log(JSON.stringify({ writer: isOld ? "zod 3" : "zod 4", model, schema: written(type) }));
if (!isOld)
  for (const model of ["Person", "Order"])
    console.log(JSON.stringify({ writer: "zod 4", model, schema: z.toJSONSchema(MODELS[model], { io: "input" }) }));
