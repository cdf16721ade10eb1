// Schemas as TypeBox writes them: `node typebox_models.mjs typebox` or, the older one, `@sinclair/typebox`.
const [, , name] = process.argv;
const { Type } = await import(name);
const isOld = name !== "typebox";

const Address = Type.Object({
  street: Type.String(),
  zip: Type.String({ pattern: "^[A-Z]{3}-\\d{2,4}$" }),
  floor: Type.Optional(Type.Union([Type.Integer({ minimum: -3 }), Type.Null()])),
});
const Color = Type.Union(["red", "green", "dark blue"].map((one) => Type.Literal(one)));
const Cat = Type.Object({ kind: Type.Literal("cat"), lives: Type.Optional(Type.Integer()) });
const Dog = Type.Object({ kind: Type.Literal("dog"), name: Type.String() });
const Bird = Type.Object({ kind: Type.Literal("bird"), words: Type.Optional(Type.Array(Type.String())) });
const Lines = Type.Object({ text: Type.String(), count: Type.Optional(Type.Integer({ default: 1 })) });
const tree = (self) =>
  Type.Object({
    value: Type.Integer(),
    left: Type.Optional(Type.Union([self, Type.Null()])),
    children: Type.Optional(Type.Array(self)),
  });

const MODELS = {
  Person: Type.Object({
    name: Type.String({ minLength: 1, maxLength: 20, description: "As others call them" }),
    age: Type.Integer({ minimum: 0, exclusiveMaximum: 150 }),
    email: Type.Optional(Type.Union([Type.String({ format: "email" }), Type.Null()])),
    tags: Type.Optional(Type.Array(Type.String(), { default: [] })),
    is_alive: Type.Optional(Type.Boolean({ default: true })),
  }),
  Home: Type.Object({
    main: Address,
    other: Type.Optional(Type.Union([Address, Type.Null()])),
    color: Type.Optional(Color),
    by_name: Type.Optional(Type.Record(Type.String(), Address)),
  }),
  Settings: Type.Object({
    color: Color,
    level: Type.Optional(Type.Union([Type.Literal(1), Type.Literal(5), Type.Literal(10)])),
    mode: Type.Union([Type.Literal("draft"), Type.Literal("final"), Type.Literal(3), Type.Null()]),
    only: Type.Optional(Type.Literal("x")),
  }),
  Zoo: Type.Object({ star: Type.Union([Cat, Dog, Bird]), others: Type.Array(Type.Union([Cat, Dog])) }),
  Tree: isOld ? Type.Recursive(tree) : Type.Cyclic({ Tree: tree(Type.Ref("Tree")) }, "Tree"),
  When: Type.Object({
    day: Type.String({ format: "date" }),
    at: Type.String({ format: "time" }),
    moment: Type.String({ format: "date-time" }),
    lasts: Type.String({ format: "duration" }),
    id: Type.String({ format: "uuid" }),
    home: Type.String({ format: "uri" }),
    address: Type.String({ format: "ipv4" }),
  }),
  Maps: Type.Object({
    counts: Type.Record(Type.String(), Type.Integer()),
    lists: Type.Optional(Type.Record(Type.String(), Type.Array(Type.Number()))),
    levels: Type.Record(Type.String(), Type.Union([Color, Type.Null()])),
    inner: Type.Optional(Type.Record(Type.String(), Type.Record(Type.String(), Type.Boolean()))),
  }),
  Tuples: Type.Object({
    pair: Type.Tuple([Type.Integer(), Type.String()]),
    many: Type.Array(Type.Integer()),
    pairs: Type.Optional(Type.Array(Type.Tuple([Type.String(), Type.Number()]))),
    three: Type.Array(Type.Integer(), { minItems: 1, maxItems: 3 }),
  }),
  Numbers: Type.Object({
    ratio: Type.Number({ exclusiveMinimum: 0, maximum: 1 }),
    even: Type.Integer({ multipleOf: 2, minimum: 0, maximum: 1000 }),
    price: Type.Number(),
    below: Type.Optional(Type.Number({ exclusiveMaximum: 0 })),
    any: Type.Optional(Type.Number()),
  }),
  Scalars: Type.Object({
    either: Type.Union([Type.Integer(), Type.String(), Type.Array(Type.Boolean())]),
    maybe: Type.Optional(Type.Union([Type.String(), Type.Null(), Type.Number()])),
    anything: Type.Optional(Type.Any()),
    nothing: Type.Optional(Type.Null()),
    data: Type.Optional(Type.Object({})),
  }),
  Names: Type.Object(
    {
      "first name": Type.String(),
      $ref: Type.Optional(Type.Integer()),
      größe: Type.Optional(Type.Integer()),
      'a "quoted" \\ name': Type.Optional(Type.Integer()),
    },
    { additionalProperties: false },
  ),
  Order: Type.Intersect([
    Lines,
    Type.Object({
      id: Type.String({ format: "uuid" }),
      items: Type.Array(Lines, { minItems: 1 }),
      payment: Type.Union([Cat, Address, Type.String()]),
      note: Type.Optional(Type.String({ maxLength: 10 })),
    }),
  ]),
  Sets: Type.Object({
    colors: Type.Array(Color, { uniqueItems: true }),
    modes: Type.Optional(Type.Array(Type.Union([Type.Literal("a"), Type.Literal("b")]), { uniqueItems: true })),
  }),
  FreeSets: Type.Object({ numbers: Type.Array(Type.Integer(), { uniqueItems: true }) }),
  Part: Type.Partial(Lines),
  Picked: Type.Omit(Lines, ["count"]),
  Route: Type.Object({ path: Type.TemplateLiteral("/v${1|2}/${string}") }),
};

for (const [model, schema] of Object.entries(MODELS))
  console.log(JSON.stringify({ writer: isOld ? "TypeBox 0.34" : "TypeBox 1", model, schema }));
