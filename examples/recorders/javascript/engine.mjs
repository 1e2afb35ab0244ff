// engine.mjs: a GPT-2 that decodes with a KV cache, in plain JavaScript, recorded for kvstep; --bug makes the mistakes that people make.
//
//     node engine.mjs ../../models/reverse 'position>' -o mine.db
//     node engine.mjs ../../models/reverse 'position>' -o bug.db --bug off-by-one
//     kvstep check bug.db -m reverse
//
// It shares no code with kvstep. Every token, the prompt's too, is fed alone. The prompt is cut by longest match over vocab.json,
// which may give other tokens than GPT-2's merges; --ids gives them exactly.
import { createHash } from "node:crypto"
import { readFileSync } from "node:fs"
import { basename, join } from "node:path"
import { parseArgs } from "node:util"

import { Recorder } from "./kvstep_recorder.mjs"

const BUGS = ["off-by-one", "reset-to-zero", "constant-position", "skip-wpe", "position-jump", "attend-before-append", "overwrite-last",
              "k-without-v", "row-never-written", "wrong-scale"]

// ---- reading a model ----

function readTensors(file) {
  const start = 8 + Number(file.readBigUInt64LE(0))
  const tensors = new Map()
  for (const [name, entry] of Object.entries(JSON.parse(file.toString("utf8", 8, start)))) {
    if (name === "__metadata__" || /\.attn\.(masked_)?bias$/.test(name)) continue
    if (entry.dtype !== "F32") throw new Error(`${name}: ${entry.dtype}, and this small engine reads float32`)
    const [begin, end] = entry.data_offsets
    const values = new Float32Array((end - begin) / 4).map((_, i) => file.readFloatLE(start + begin + 4 * i))
    tensors.set(name.replace(/^transformer\./, ""), values)
  }
  return tensors
}

// GPT-2's table: every byte has a printable letter in vocab.json.
function byteOfLetter() {
  const plain = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174
  let next = 256
  return new Map([...Array(256).keys()].map((b) => [String.fromCharCode(plain(b) ? b : next++), b]))
}

function readModel(folder) {
  const config = JSON.parse(readFileSync(join(folder, "config.json"), "utf8"))
  if (!["gelu_new", "gelu_pytorch_tanh", undefined].includes(config.activation_function) || config.scale_attn_weights === false ||
      config.scale_attn_by_inverse_layer_idx || config.tie_word_embeddings === false)
    throw new Error(`${folder}: this small engine knows GPT-2's usual scale, activation and head only`)
  const file = readFileSync(join(folder, "model.safetensors"))
  const letters = byteOfLetter()
  const vocab = Object.entries(JSON.parse(readFileSync(join(folder, "vocab.json"), "utf8")))
  const tokens = new Map(vocab.map(([word, id]) => [id, Buffer.from([...word].map((c) => letters.get(c)))]))
  const w = readTensors(file)
  return { ...config, name: basename(folder), sha256: createHash("sha256").update(file).digest("hex"), w, tokens,
           n_vocab: w.get("wte.weight").length / config.n_embd, n_ctx: w.get("wpe.weight").length / config.n_embd }
}

function encode(model, text) {
  const ids = new Map([...model.tokens].map(([id, bytes]) => [bytes.toString("latin1"), id]))
  const found = []
  for (let rest = Buffer.from(text).toString("latin1"); rest;) {
    let length = Math.min(rest.length, 64)
    while (length && !ids.has(rest.slice(0, length))) length--
    if (!length) throw new Error(`no token begins with byte ${rest.charCodeAt(0)}`)
    found.push(ids.get(rest.slice(0, length)))
    rest = rest.slice(length)
  }
  return found
}

// ---- arithmetic ----

const add = (a, b) => a.map((value, i) => value + b[i])
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0)
const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)))

function layerNorm(model, x, name) {
  const gain = model.w.get(name + ".weight"), bias = model.w.get(name + ".bias")
  const mean = x.reduce((a, b) => a + b, 0) / x.length
  const variance = x.reduce((a, b) => a + (b - mean) ** 2, 0) / x.length
  return x.map((value, i) => ((value - mean) / Math.sqrt(variance + (model.layer_norm_epsilon ?? 1e-5))) * gain[i] + bias[i])
}

// x [in] times the matrix [in][out], plus the bias
function affine(model, x, name) {
  const w = model.w.get(name + ".weight"), y = Float64Array.from(model.w.get(name + ".bias"))
  x.forEach((value, i) => { for (let j = 0; j < y.length; j++) y[j] += value * w[i * y.length + j] })
  return Float32Array.from(y)
}

function softmax(x) {
  const most = Math.max(...x), e = x.map((value) => Math.exp(value - most)), sum = e.reduce((a, b) => a + b, 0)
  return e.map((value) => value / sum)
}

// ---- the engine ----

class Engine {
  constructor(model, recorder, bug, bugFrom) {
    Object.assign(this, { model, recorder, bug, bugFrom, steps: 0, length: 0, promptLength: bugFrom })
    const rows = () => Array.from({ length: model.n_ctx }, () => new Float32Array(model.n_embd))
    this.cache = Array.from({ length: model.n_layer }, () => ({ k: rows(), v: rows() }))
  }

  makes(bug) {
    return this.bug === bug && this.steps >= this.bugFrom
  }

  // The rule: the position is the cache length before the append.
  position() {
    if (this.makes("off-by-one")) return this.length + 1
    if (this.makes("reset-to-zero")) return 0
    if (this.makes("constant-position")) return this.promptLength
    if (this.makes("position-jump")) return this.length + this.promptLength - 1
    return this.makes("skip-wpe") ? null : this.length
  }

  full() {
    return this.length >= this.model.n_ctx || this.position() >= this.model.n_ctx
  }

  feed(token, source) {
    const { model, recorder } = this, E = model.n_embd, before = this.length, position = this.position()
    const after = this.makes("overwrite-last") && before > 0 ? before : before + 1
    recorder.step({ token, position, cache_length_before: before, cache_length_after: after, source })
    recorder.event("read_length", null, before)
    const wte = model.w.get("wte.weight").slice(token * E, (token + 1) * E)
    const wpe = position === null ? null : model.w.get("wpe.weight").slice(position * E, (position + 1) * E)
    let x = wpe ? add(wte, wpe) : wte
    const entered = x
    recorder.event("embed", null, before)
    for (let layer = 0; layer < model.n_layer; layer++) x = this.block(layer, x)
    x = layerNorm(model, x, "ln_f")
    const all = model.w.get("wte.weight")
    const logits = new Float32Array(model.n_vocab).map((_, i) => dot(x, all.subarray(i * E, (i + 1) * E)))
    recorder.event("logits", null, after)
    recorder.stepVector({ wte, wpe, x: entered, logits })
    this.length = after
    this.steps++
    return logits
  }

  // What each head sees in the first `rows` rows of a layer.
  attend(layer, q, rows) {
    const { n_head, n_embd } = this.model, D = n_embd / n_head, { k, v } = this.cache[layer]
    const scale = this.makes("wrong-scale") ? 1 : 1 / Math.sqrt(D)
    return Array.from({ length: n_head }, (_, h) => {
      const of = (row) => row.subarray(h * D, (h + 1) * D)
      const scores = k.slice(0, rows).map((row) => dot(of(q), of(row)) * scale), weights = softmax(scores)
      const out = new Float32Array(D)
      weights.forEach((weight, r) => of(v[r]).forEach((value, d) => { out[d] += weight * value }))
      return { q: of(q), scores, weights, out }
    })
  }

  append(layer, k, v) {
    const row = this.makes("overwrite-last") && this.length > 0 ? this.length - 1 : this.length
    if (!this.makes("row-never-written")) this.cache[layer].k[row].set(k)
    if (!this.makes("row-never-written") && !this.makes("k-without-v")) this.cache[layer].v[row].set(v)
    return row
  }

  block(layer, x_in) {
    const { model, recorder } = this, E = model.n_embd, name = `h.${layer}.`
    const qkv = affine(model, layerNorm(model, x_in, name + "ln_1"), name + "attn.c_attn")
    const told = (phases, length) => phases.forEach((phase) => recorder.event(phase, layer, length))
    const late = this.makes("attend-before-append") && this.length > 0
    let heads
    told(["project"], this.length)
    if (late) {
      heads = this.attend(layer, qkv.subarray(0, E), this.length)
      told(["score", "softmax", "mix"], this.length)
    }
    const row = this.append(layer, qkv.subarray(E, 2 * E), qkv.subarray(2 * E))
    told(["append"], row + 1)
    recorder.kvRow(layer, row, this.cache[layer].k[row], this.cache[layer].v[row])
    if (!late) {
      heads = this.attend(layer, qkv.subarray(0, E), row + 1)
      told(["score", "softmax", "mix"], row + 1)
    }
    heads.forEach((head, h) => recorder.headStep(layer, h, head))
    const attn_out = affine(model, Float32Array.from(heads.flatMap((head) => [...head.out])), name + "attn.c_proj")
    const x_mid = add(x_in, attn_out)
    told(["output"], row + 1)
    const mlp_out = affine(model, affine(model, layerNorm(model, x_mid, name + "ln_2"), name + "mlp.c_fc").map(gelu), name + "mlp.c_proj")
    const x_out = add(x_mid, mlp_out)
    told(["mlp"], row + 1)
    recorder.layerStep(layer, { x_in, attn_out, x_mid, mlp_out, x_out })
    return x_out
  }
}

// ---- a run ----

async function main() {
  const { values: o, positionals: [folder, prompt = ""] } = parseArgs({
    allowPositionals: true,
    options: { output: { type: "string", short: "o" }, tokens: { type: "string", short: "n", default: "16" }, ids: { type: "string" },
               bug: { type: "string" }, "bug-from": { type: "string" }, append: { type: "boolean" } },
  })
  if (!folder || !o.output || (o.bug && !BUGS.includes(o.bug)))
    throw new Error(`usage: engine.mjs FOLDER PROMPT -o TRACE [-n TOKENS] [--ids 1,2] [--append] [--bug NAME] [--bug-from STEP]\nbugs: ${BUGS.join(" ")}`)
  const model = readModel(folder)
  const ids = o.ids ? o.ids.split(",").map(Number) : encode(model, prompt)
  if (!ids.length || !ids.every((id) => Number.isInteger(id) && id >= 0 && id < model.n_vocab)) throw new Error("the prompt is empty, or not of this vocabulary")
  const recorder = await Recorder.open(o.output, { append: o.append })
  const text = (tokens) => Buffer.concat(tokens.map((id) => model.tokens.get(id) ?? Buffer.from("?"))).toString()
  recorder.beginRun({ ...model, engine: "engine.mjs", engine_version: "1", command: process.argv.slice(1).join(" "), model: model.name,
                      model_sha256: model.sha256, prompt: text(ids), temperature: 0 })
  const engine = new Engine(model, recorder, o.bug, o["bug-from"] ? Number(o["bug-from"]) : ids.length)
  engine.promptLength = ids.length
  const shown = [...ids]
  let logits
  for (const id of ids) if (!engine.full()) logits = engine.feed(id, "prompt")
  for (let i = 0; i < Number(o.tokens) && !engine.full(); i++) {
    const token = logits.indexOf(Math.max(...logits))
    if (token === model.eos_token_id) break
    shown.push(token)
    logits = engine.feed(token, "sampled")
  }
  recorder.finish()
  console.log(text(shown))
}

main().catch((error) => {
  console.error(`engine.mjs: ${error.message}`)
  process.exitCode = 1
})
