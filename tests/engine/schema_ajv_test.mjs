// Constrained output against ajv (npm): random schemas with random documents have to be judged
// alike, and what the token masks let through has to be valid.
//
//   node schema_ajv_test.mjs SCHEMA_PROGRAM NODE_MODULES [ROUNDS] [SEED]
//
// NODE_MODULES is a folder with ajv and ajv-formats: `npm install ajv ajv-formats` makes one. Exits
// with 77 where it has none.
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { existsSync } from 'node:fs';
import path from 'node:path';

const [program, modules, rounds = '300', seed = '1'] = process.argv.slice(2);
if (!modules || !existsSync(path.join(modules, 'ajv'))) {
  console.log(`skipped: no ajv in '${modules ?? ''}' (npm install ajv ajv-formats)`);
  process.exit(77);
}
const require = createRequire(path.join(path.resolve(modules), 'of_the_test.js'));
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats');
const validator = (schema) => {
  const ajv = new Ajv({ strict: false, allErrors: false, logger: false });
  addFormats.default ? addFormats.default(ajv) : addFormats(ajv);
  return ajv.compile(schema);
};

// --- Randomness that a seed repeats

let state = BigInt(seed);
const next = () => {
  state = (state * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
  return Number(state >> 33n);
};
const below = (n) => next() % n;
const one = (list) => list[below(list.length)];
const chance = (p) => next() / 2 ** 31 < p;
const times = (n, make) => Array.from({ length: n }, make);

// --- Schemas

const names = ['a', 'b', 'ab', 'name', 'é', 'q"t', 'x/y', 'tab\t'];
const texts = ['', 'a', 'ab', 'abc', 'zz', '12', 'é', '\u{1F600}', 'line\nbreak', 'q"uote', '\u0001'];
const patterns = ['^a', 'b$', '^[a-z]+$', '^(ab|c)*$', '[0-9]{2}', '^.{2,4}$', '^\\w+\\s?$', '\\d', '^[^a]*$', 'a|^z+$', '^$'];
const formats = ['date', 'time', 'date-time', 'uuid', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'json-pointer'];
const namePatterns = ['^a', 'b$', '^[ab]$', '^n', '^.{1,2}$', 'x'];
const numbers = [0, 1, -1, 2, 3, 10, 99, 100, -7, 12, 1.5, -0.25, 0.1, 1e5, 2.75, 1234567];

const scalarConstant = () => one([null, true, false, one(numbers), one(texts)]);
const constant = (depth) =>
  depth > 0 && chance(0.25)
    ? chance(0.5)
      ? times(below(3), () => constant(depth - 1))
      : Object.fromEntries(times(below(3), () => [one(names), constant(depth - 1)]))
    : scalarConstant();

const stringRules = () => {
  const rules = {};
  if (chance(0.4)) rules.minLength = below(4);
  if (chance(0.4)) rules.maxLength = below(6);
  if (chance(0.4)) rules.pattern = one(patterns);
  if (chance(0.1)) rules.format = one(formats);
  return rules;
};
const numberRules = () => {
  const rules = {};
  if (chance(0.4)) rules[one(['minimum', 'exclusiveMinimum'])] = one(numbers);
  if (chance(0.4)) rules[one(['maximum', 'exclusiveMaximum'])] = one(numbers);
  if (chance(0.15)) rules.multipleOf = one([1, 2, 3, 7, 10]);
  return rules;
};
const arrayRules = (depth) => {
  const rules = {};
  if (chance(0.4)) rules.prefixItems = times(1 + below(2), () => schema(depth - 1));
  if (chance(0.5)) rules.items = schema(depth - 1);
  if (chance(0.3)) rules.minItems = below(3);
  if (chance(0.3)) rules.maxItems = below(4);
  return rules;
};
const objectRules = (depth) => {
  const rules = {};
  if (chance(0.8)) {
    rules.properties = Object.fromEntries(times(below(4), () => [one(names), schema(depth - 1)]));
  }
  if (chance(0.4)) rules.required = [...new Set(times(below(3), () => one(names)))];
  if (chance(0.5)) rules.additionalProperties = chance(0.6) ? false : schema(depth - 1);
  if (chance(0.2)) {
    rules.patternProperties = Object.fromEntries(times(1 + below(2), () => [one(namePatterns), schema(depth - 1)]));
  }
  if (chance(0.1)) rules.propertyNames = one([{ maxLength: 2 }, { pattern: '^[a-n]' }, { enum: ['a', 'b', 'name'] }, { not: { const: 'a' } }]);
  if (chance(0.15)) rules.minProperties = below(3);
  if (chance(0.15)) rules.maxProperties = below(4);
  if (chance(0.1)) rules.dependentRequired = { [one(names)]: [one(names)] };
  if (chance(0.07)) rules.dependentSchemas = { [one(names)]: schema(depth - 1) };
  return rules;
};
const types = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'];
const rulesOf = (type, depth) =>
  type === 'string' ? stringRules()
  : type === 'integer' || type === 'number' ? numberRules()
  : type === 'array' ? arrayRules(depth)
  : type === 'object' ? objectRules(depth)
  : {};

function schema(depth) {
  if (chance(0.05)) return true;
  if (chance(0.03)) return false;
  if (depth <= 0) {
    const type = one(types.slice(0, 5));
    return chance(0.3) ? { enum: times(1 + below(3), () => constant(1)) } : { type, ...rulesOf(type, 0) };
  }
  if (chance(0.15)) return { $ref: one(['#', '#/$defs/d0', '#/$defs/d1']), ...(chance(0.3) ? objectRules(depth - 1) : {}) };
  const kind = below(10);
  const out = {};
  if (kind < 6) {
    const type = one(types.concat(['object', 'array', 'object']));
    Object.assign(out, { type }, rulesOf(type, depth));
  } else if (kind < 7) {
    out.type = [...new Set(times(1 + below(3), () => one(types)))];
    for (const type of out.type) Object.assign(out, rulesOf(type, depth));
  } else if (kind < 8) {
    out[one(['enum', 'enum', 'const'])] = null;
    if ('enum' in out) out.enum = times(1 + below(4), () => constant(2));
    else out.const = constant(2);
  } else {
    if (chance(0.4)) Object.assign(out, rulesOf(one(types), depth));
  }
  if (chance(0.2)) out.anyOf = times(1 + below(3), () => schema(depth - 1));
  if (chance(0.08)) out.allOf = times(1 + below(2), () => schema(depth - 1));
  if (chance(0.08)) out.not = negatable(depth - 1);
  if (chance(0.08)) {
    out.if = negatable(depth - 1);
    if (chance(0.8)) out.then = schema(depth - 1);
    if (chance(0.6)) out.else = schema(depth - 1);
  }
  return out;
}
// What `not` and `if` mostly hold.
function negatable(depth) {
  switch (below(7)) {
    case 0: return { type: one(types) };
    case 1: return { const: constant(1) };
    case 2: return { enum: times(1 + below(3), () => constant(1)) };
    case 3: return { properties: { [one(names)]: { const: scalarConstant() } }, ...(chance(0.6) ? { required: [one(names)] } : {}) };
    case 4: return { required: [one(names)] };
    case 5: return { ...stringRules(), ...numberRules() };
    default: return depth > 0 ? { [one(['anyOf', 'allOf'])]: times(2, () => negatable(depth - 1)) } : true;
  }
}
const document = () => {
  const root = schema(3);
  if (typeof root !== 'object') return root;
  return { ...root, $defs: { d0: schema(2), d1: schema(2) } };
};

// --- Values near a schema

const at = (root, ref) => ref === '#' ? root : root.$defs?.[ref.slice(8)] ?? true;
function value(s, root, depth) {
  if (depth <= 0 || s === true || s === false || chance(0.08)) return constant(2);
  if (s.$ref && chance(0.9)) return value(at(root, s.$ref), root, depth - 1);
  if (s.enum && chance(0.9)) return one(s.enum);
  if ('const' in s && chance(0.9)) return s.const;
  if (s.anyOf && chance(0.8)) return value(one(s.anyOf), root, depth - 1);
  const type = Array.isArray(s.type) ? one(s.type) : s.type ?? one(types);
  switch (type) {
    case 'null': return null;
    case 'boolean': return chance(0.5);
    case 'integer': return one(numbers.filter(Number.isInteger)) + below(3);
    case 'number': return one(numbers) + one([0, 0.5, 0.25, 1]);
    case 'string': {
      if (s.format && chance(0.7)) return one(formatted);
      if (s.pattern && chance(0.5)) return one(['a', 'ab', 'cab', '12', 'zz', 'abab', 'word ', 'bbbb']);
      return times(below(3), () => one(texts)).join('');
    }
    case 'array': {
      const n = chance(0.8) ? Math.max(s.minItems ?? 0, below(4)) : below(4);
      return times(n, (_, i) => value(s.prefixItems?.[i] ?? s.items ?? true, root, depth - 1));
    }
    default: {
      const out = {};
      for (const [name, each] of Object.entries(s.properties ?? {})) {
        if (chance(0.7) || s.required?.includes(name)) out[name] = value(each, root, depth - 1);
      }
      if (chance(0.9)) {
        for (const name of s.required ?? []) {
          if (!(name in out)) out[name] = value(s.additionalProperties ?? true, root, depth - 1);
        }
      }
      if (chance(0.25)) out[one(names)] = value(s.additionalProperties ?? true, root, depth - 1);
      return Object.fromEntries(Object.entries(out).sort(() => below(3) - 1));
    }
  }
}
const formatted = ['2024-02-29', '2023-02-29', '1999-12-31', '2000-02-29', '1900-02-29', '2024-13-01',
  '12:30:00Z', '23:59:59.125+02:00', '24:00:00Z', '12:30:00', '2024-02-29T12:30:00Z',
  'a@b.org', 'a@b', 'x.y@z.example.com', 'localhost', 'a-b.c', '-a', '127.0.0.1', '1.2.3.256', '::1', '1::2::3',
  '2001:db8::1', 'https://h.org/a?b#c', 'urn:a:b', 'no uri', 'P1D', 'PT1H30M', 'P', '/a/b', '/~2', '',
  '2024-02-30T12:30:00Z', '123e4567-e89b-12d3-a456-426614174000', '123e4567e89b12d3a456426614174000'];

const spelled = (v) => one([
  () => JSON.stringify(v),
  () => JSON.stringify(v, null, 2),
  () => JSON.stringify(v, null, '\t'),
  () => JSON.stringify(v, null, 1).replace(/\n */g, ' ').replace(/([[{]) /g, '$1').replace(/ ([\]}])/g, '$1'),
])();

// --- The program under test

const child = spawn(program, process.argv.includes('toy') ? ['toy'] : [], { stdio: ['pipe', 'pipe', 'inherit'] });
const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
const ask = async (question) => {
  child.stdin.write(JSON.stringify(question) + '\n');
  const { value: line, done } = await answers.next();
  if (done) throw new Error(`the program ended at ${JSON.stringify(question)}`);
  return JSON.parse(line);
};

let failures = 0;
const fail = (what, details) => {
  if (++failures <= 5) console.log(`FAILED: ${what}\n  ${JSON.stringify(details)}`);
};

const count = { schemas: 0, impossible: 0, refused: 0, valid: 0, invalid: 0, sampled: 0, samples: 0, tokens: 0, cut: 0 };
for (let round = 0; round < Number(rounds); ++round) {
  const tested = document();
  let validate;
  try {
    validate = validator(tested);
  } catch (error) {
    continue;
  }
  const judge = (v) => { try { return validate(v); } catch { return null; } };  // endless $ref
  const documents = times(30, () => value(tested, tested, 5));
  const verdicts = documents.map(judge);
  if (verdicts.includes(null)) continue;
  ++count.schemas;
  const questions = documents.map(spelled);
  const answer = await ask({ schema: tested, texts: questions });
  if (answer.error) {
    ++count.refused;
    if (!/multiply|more than|not supported inside of not/.test(answer.error)) fail('refused', { answer, tested });
    continue;
  }
  answer.accepts.forEach((accepted, i) => {
    verdicts[i] ? ++count.valid : ++count.invalid;
    if (accepted !== verdicts[i]) fail(`automaton ${accepted}, ajv ${verdicts[i]}`, { text: questions[i], tested });
  });
  if (round % 3 !== 0) continue;
  const drawn = await ask({ schema: tested, samples: 20, seed: round });
  if (drawn.error) {
    ++count.impossible;
    if (!/no value/.test(drawn.error)) fail('no samples', { drawn, tested });
    if (verdicts.includes(true)) fail('impossible, but there is a valid value', { tested });
    continue;
  }
  ++count.sampled;
  count.tokens += drawn.tokens;
  count.cut += drawn.cut;
  count.samples += drawn.samples.length;
  if (drawn.stuck > 0) fail('no token was allowed', { drawn, tested });
  for (const text of drawn.samples) {
    let parsed;
    try {
      parsed = JSON.parse(text);
    } catch (error) {
      fail('a sample is no JSON', { text, tested });
      continue;
    }
    if (!judge(parsed)) fail('a sample is invalid', { text, errors: validate.errors, tested });
  }
}
child.stdin.end();
console.log(`seed ${seed}: ${JSON.stringify(count)}`);
const wants = { schemas: rounds / 2, valid: rounds, invalid: rounds, samples: rounds };
for (const [what, least] of Object.entries(wants)) {
  if (count[what] < least) fail(`only ${count[what]} ${what}`, count);
}
console.log(failures === 0 ? 'passed' : `${failures} failures`);
process.exit(failures === 0 ? 0 : 1);
