// Grammar of .attn files for Tree-sitter: that of frontend/parser.y, with nodes
// that editors have use for. src/ is what `tree-sitter generate` makes of it.

const PREC = {
  CHOICE: 1, PIPE: 2, OR: 3, AND: 4, NOT: 5, RELATION: 6, SUM: 7, PRODUCT: 8,
  MINUS: 9, POWER: 10, POSTFIX: 11,
};

// Words that mean something in their place only, and are names elsewhere.
const SOFT = [
  'as', 'mask', 'mod', 'attention', 'recurrent', 'check', 'schedule', 'for',
  'index', 'state', 'step', 'repeat', 'ragged', 'paged', 'dyn', 'input',
  'expect', 'dims', 'tol',
];

const TYPES = [
  'f64', 'f32', 'tf32', 'bf16', 'f16', 'f8e4m3', 'f8e5m2', 'i64', 'i32', 'i16',
  'i8', 'u32', 'u16', 'u8', 'bool',
];

const list = (rule) => seq(rule, repeat(seq(',', rule)));
const open_list = (rule) => seq(rule, repeat(seq(',', rule)), optional(','));

module.exports = grammar({
  name: 'attn',
  word: ($) => $._word,
  extras: ($) => [/[ \t\r\n\f]+/, $.comment],
  supertypes: ($) => [$._declaration, $._statement, $._expression],
  inline: ($) => [$._value, $._element],

  rules: {
    file: ($) => repeat(seq(repeat($.attribute), $._declaration)),
    comment: ($) => token(/#[^\n]*/),

    attribute: ($) => prec.right(seq('@', field('name', $.name),
      optional($.arguments))),

    // ---- declarations
    _declaration: ($) => choice($.import, $.constant, $.function, $.mask, $.mod,
      $.row, $.program, $.schedule, $.check),
    import: ($) => seq('import', field('module', $.path), choice(
      ';',
      seq('{', list(field('name', $.name)), '}'),
      seq('as', field('alias', $.name), ';'))),
    path: ($) => prec.right(seq($.name, repeat(seq('.', $.name)))),
    constant: ($) => seq('let', field('name', $.name), '=',
      field('value', $._expression), ';'),
    function: ($) => seq('fn', field('name', $.name), optional($.generics),
      $.parameters, optional($._result), field('body', $._body)),
    mask: ($) => seq('mask', field('name', $.name), $.parameters,
      field('body', $._body)),
    mod: ($) => seq('mod', field('name', $.name), $.parameters,
      field('body', $._body)),
    row: ($) => seq('row', field('name', $.name), $.parameters,
      optional($._result), field('body', $._body)),
    program: ($) => seq(field('kind', choice('attention', 'recurrent')),
      field('name', $.name), optional($.generics), $.parameters, '->',
      field('outputs', $.parameters),
      optional(seq('where', list(field('constraint', $._expression)))),
      field('body', $.block)),
    schedule: ($) => seq('schedule', field('program', $.path), 'for',
      field('target', $.string), '{', repeat($.setting), '}'),
    setting: ($) => seq(field('key', $.name), '=', field('value', $._value),
      ';'),
    check: ($) => seq('check', field('title', $.string), '{',
      repeat(choice($.dims, $.input, $.expect, $.let)), '}'),

    // ---- signatures
    generics: ($) => seq('<', list($.dim), '>'),
    dim: ($) => seq(field('name', $.name), optional(seq(':', choice(
      seq(choice('dyn', 'const'), optional($.choices), optional($._range)),
      seq('ragged', '(', $.name, ')', optional($._range)),
      seq('dtype', '{', list($.type_name), '}'))))),
    choices: ($) => seq('{', list($._expression), '}'),
    _range: ($) => seq('in', $._sum, '..', $._sum),
    parameters: ($) => seq('(', optional(open_list($.parameter)), ')'),
    parameter: ($) => seq(optional(choice('nograd', 'inout')),
      field('name', $.name), optional(seq(':', field('type', $.type),
        optional(choice(seq('=', field('default', $._expression)),
          $.layout))))),
    type: ($) => choice(seq(optional('row'), $._element),
      seq($._element, $.shape)),
    shape: ($) => seq('[', list($._expression), ']'),
    _element: ($) => choice($.type_name, $.name),
    type_name: ($) => choice('int', ...TYPES),
    layout: ($) => seq('layout', choice(
      seq('(', list($.name), ')'),
      seq(choice('paged', 'ragged'), $.arguments))),
    _result: ($) => seq('->', choice(field('result', $.type),
      seq('(', list(field('result', $.type)), ')'))),
    _body: ($) => choice(seq('=', $._expression, ';'), $.block),

    // ---- statements
    block: ($) => seq('{', repeat($._statement), '}'),
    _statement: ($) => choice($.let, $.indices, $.return, $.assume, $.equation,
      $.state, $.step, $.repeat),
    let: ($) => seq('let', choice(field('name', $.name),
      seq('(', list(field('name', $.name)), ')')), '=',
      field('value', $._expression), ';'),
    indices: ($) => seq('index', list($.index), ';'),
    index: ($) => seq(field('name', $.name), 'in', field('extent', $._sum),
      optional(seq('where', field('domain', $._expression)))),
    return: ($) => seq('return', list($._expression), ';'),
    assume: ($) => seq('assume', $._expression, ';'),
    equation: ($) => seq(field('name', $.name), optional($.items), '=',
      field('value', $._expression), ';'),
    state: ($) => seq('state', field('name', $.name), ':',
      field('type', $.type), '=', field('value', $._expression), ';'),
    step: ($) => seq('step', field('name', $.name),
      optional(seq('in', field('extent', $._sum))), optional('reverse'),
      field('body', $.block)),
    repeat: ($) => seq('repeat', field('name', $.name), 'in',
      field('extent', $._sum), field('body', $.block)),

    // ---- statements of checks
    dims: ($) => seq('dims', list($.binding), ';'),
    binding: ($) => seq(field('name', $.name), '=', field('value', $._value)),
    input: ($) => seq('input', list(field('name', $.name)), '=',
      field('value', $._expression), ';'),
    expect: ($) => seq('expect', field('got', $._expression), '~=',
      field('want', $._expression), 'tol', field('tolerance', $._expression),
      ';'),

    // ---- expressions
    _value: ($) => choice($._expression, $.type_name),
    _expression: ($) => choice($.choice, $.pipe, $._sum, $.relation, $.logic,
      $.not),
    choice: ($) => prec.right(PREC.CHOICE, seq('if',
      field('condition', $._expression), 'then', field('then', $._expression),
      'else', field('else', $._expression))),
    pipe: ($) => prec.left(PREC.PIPE, seq(field('value', $._expression), '|>',
      field('function', $.path), optional($.arguments))),
    logic: ($) => choice(
      prec.left(PREC.OR, seq($._expression, '|', $._expression)),
      prec.left(PREC.AND, seq($._expression, '&', $._expression))),
    not: ($) => prec(PREC.NOT, seq('!', $._expression)),
    relation: ($) => prec.left(PREC.RELATION, seq($._sum,
      repeat1(seq(choice('<', '>', '<=', '>=', '==', '!='), $._sum)))),
    _sum: ($) => choice($.binary, $.negative, $._postfix),
    binary: ($) => choice(
      prec.left(PREC.SUM, seq($._sum, choice('+', '-'), $._sum)),
      prec.left(PREC.PRODUCT, seq($._sum, choice('*', '/', '//', '%', '@@'),
        $._sum)),
      prec.right(PREC.POWER, seq($._postfix, '**', $._sum))),
    negative: ($) => prec(PREC.MINUS, seq('-', $._sum)),
    _postfix: ($) => choice($.element, $.member, $.call, $.cast,
      $.parenthesized, $.tuple, $.name, $.number, $.string, $.boolean,
      $.infinity),
    element: ($) => prec(PREC.POSTFIX, seq(field('value', $._postfix),
      $.items)),
    items: ($) => seq('[', list(choice($._expression, $.slice)), ']'),
    slice: ($) => prec.right(seq(optional($._expression), ':',
      optional($._expression))),
    member: ($) => prec(PREC.POSTFIX, seq(field('value', $._postfix), '.',
      field('name', $.name))),
    call: ($) => prec(PREC.POSTFIX, seq(
      field('function', choice($._postfix, alias('const', $.name))),
      $.arguments)),
    cast: ($) => prec(PREC.POSTFIX, seq(field('type', $.type_name), '(',
      $._expression, ')')),
    arguments: ($) => seq('(', optional(open_list(choice($._value,
      $.named_argument, $.binder))), ')'),
    named_argument: ($) => seq(field('name', $.name), '=',
      field('value', $._value)),
    binder: ($) => seq(field('index', $.name), ':',
      field('value', $._expression)),
    parenthesized: ($) => seq('(', $._expression, ')'),
    tuple: ($) => seq('(', $._expression, ',', list($._expression), ')'),
    number: ($) => token(choice(/0[xX][0-9a-fA-F]+/, /[0-9]+/,
      /[0-9]+\.[0-9]+([eE][-+]?[0-9]+)?/, /[0-9]+[eE][-+]?[0-9]+/)),
    string: ($) => /"[^"\n]*"/,
    boolean: ($) => choice('true', 'false'),
    infinity: ($) => 'inf',

    name: ($) => choice($._word, ...SOFT.map((w) => alias(w, $.soft_word))),
    _word: ($) => /[A-Za-z_][A-Za-z0-9_]*/,
  },
});
