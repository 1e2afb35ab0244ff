"""check_other_engine.py KVSTEP FOLDER: what `kvstep check` says of an engine that was not written with it in mind (tests/other_engine.py): its right runs are
clean, its mistakes are named, and each finding's query returns rows in stock SQLite."""
import json
import os
import sqlite3
import subprocess
import sys

import numpy as np

sys.dont_write_bytecode = True
from other_engine import EVERYTHING, Engine, write

KVSTEP, FOLDER = sys.argv[1:3]
REVERSE, AUSTEN = "examples/models/reverse", "examples/models/austen"
SCHEMA = open("src/trace/schema.sql").read()
PROMPT = [1, 2, 3, 4, 26]  # bcde>
ROWS, HF = "kv", "kv weights"
failed = number = 0


def after(step):
    return lambda s, layer: s >= step


def at(step):
    return lambda s, layer: s == step


def report(name, good, text=""):
    global failed, number
    number += 1
    failed += not good
    print(f"{'ok' if good else 'not ok'} {number} - {name}" + ("" if good else f"\n# {text}"))


def check(path, model):
    made = subprocess.run([KVSTEP, "check", path, "-o", "json"] + (["-m", model] if model else ["--no-model"]), capture_output=True, text=True)
    try:
        return json.loads(made.stdout)["runs"][0]
    except (ValueError, IndexError):
        return {"verdict": made.stderr, "findings": [], "remarks": []}


def judge(name, engine, wanted, logged=EVERYTHING, weights=True, says="", **options):
    """wanted: the kinds, or CLEAN; says: words of a sentence or a remark."""
    path = os.path.join(FOLDER, "other.db")
    if os.path.exists(path):
        os.remove(path)
    write(path, engine, logged=logged, schema=SCHEMA, **options)
    run = check(path, engine.folder if weights else None)
    found = [kind for finding in run["findings"] for kind in finding["kinds"][:1]]
    text = "; ".join([finding["sentence"] for finding in run["findings"]] + run["remarks"])
    verdicts = {"CLEAN": "clean", "CANNOT TELL": "cannot tell"}
    good = (run["verdict"] == verdicts[wanted] if wanted in verdicts else found == wanted.split()) and says in text
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for finding in run["findings"]:
        if good and not db.execute(finding["sql"]).fetchall():
            good, text = False, "no rows: " + finding["sql"]
    db.close()
    report(f"{name} ({logged}{'' if weights else ', no weights'})", good, f"{run['verdict']} {found}: {text}")


def right_runs():
    for weights in (True, False):
        for logged in (EVERYTHING, ROWS, HF, "k0"):
            # Rows alone say nothing of positions to whoever has no weights.
            wanted = "CLEAN" if weights or logged in (EVERYTHING, HF) else "CANNOT TELL"
            judge("a right run", Engine(REVERSE).decode(PROMPT, 10), wanted, logged, weights, prompt="bcde>")
        judge("a draft taken back", Engine(REVERSE).decode(PROMPT, 8, draft_at=2), "CLEAN", weights=weights)
        moved = Engine(REVERSE).decode(PROMPT, 6)
        moved.length = 0
        logits = moved.feed([line["token"] for line in moved.log[-4:]], "forced", prefill=True)
        moved.feed([int(np.argmax(logits))], "sampled")
        judge("a text fed anew from row 0", moved, "CLEAN", weights=weights)
        judge("a text with marks for lost bytes", Engine(REVERSE).decode(PROMPT, 6), "CLEAN", weights=weights, prompt="b\ufffdde>")
        judge("another text than the tokens'", Engine(REVERSE).decode(PROMPT, 6), "CLEAN", weights=weights, prompt=" Bcdx")
        padded = Engine(REVERSE).decode(PROMPT, 6)
        for line in padded.log[:5]:
            line["heads"] = [(l, h, q, np.append(s, [-1e4] * (5 - len(s))), np.append(w, [0] * (5 - len(w))), o) for l, h, q, s, w, o in line["heads"]]
        judge("masked rows kept at -10000", padded, "CLEAN", weights=weights)
        judge("masked rows kept at -10000", padded, "CLEAN", "kv q scores", weights)


def tokens_and_context():
    for weights in (True, False):
        judge("a prompt's token left out", Engine(REVERSE).decode(PROMPT[:2] + PROMPT[3:], 6), "token-skipped", weights=weights, prompt="bcde>")
        judge("a draft kept, and its end chooses the same", Engine(REVERSE).decode(PROMPT, 9, draft_at=5, keep_draft=True), "no-rollback", weights=weights)
        judge("a draft kept", Engine(REVERSE).decode(PROMPT, 8, draft_at=2, keep_draft=True), "no-rollback", weights=weights)
        for logged in (EVERYTHING, ROWS):
            judge("the last row over and over", Engine(REVERSE, at_end="overwrite").decode(PROMPT, 30), "context-unguarded" if weights or logged != ROWS else "context-overflow", logged, weights)
        judge("the oldest row dropped", Engine(REVERSE, at_end="drop the oldest").decode(PROMPT, 30), "context-overflow", weights=weights)
        lost = Engine(REVERSE)
        logits = lost.feed(PROMPT, "prompt", prefill=True)
        for _ in range(4):
            lost.length = 0
            logits = lost.feed([int(np.argmax(logits))], "sampled")
        judge("a cache not handed on", lost, "wrong-length", "k0", weights, "not handed on from step to step")


def sampled():
    """Where the best token is not always taken only step.logprob tells which was, and every engine reckons it in its own way."""
    nothing, another = "is not logged. A token fed twice", "is not that of softmax(logits)"
    for model, prompt in ((REVERSE, PROMPT), (AUSTEN, PROMPT)):
        for seed in range(4):
            def engine(**options):
                return Engine(model).sample(prompt, 12, 0.7, seed, **options)
            judge(f"sampled, seed {seed}", engine(), "CLEAN", says="tokens against what was chosen" if model == AUSTEN else "")
            judge(f"sampled, logprob scaled, seed {seed}", engine(), "CLEAN", logprob="scaled", says=another)
            judge(f"sampled, no logprob, seed {seed}", engine(), "CLEAN", logprob=None, says=nothing)
            judge(f"sampled, no logprob, one left out, seed {seed}", engine(skip_at=4), "CLEAN", logprob=None, says=nothing)
        judge("sampled, one left out", Engine(AUSTEN).sample(prompt, 12, 0.7, 1, skip_at=4), "token-skipped")


def positions():
    judge("positions by no rule, some of them by chance", Engine(AUSTEN, {"scattered": after(5)}).decode(PROMPT, 10), "wrong-position", "k0", says="follow no rule")
    judge("one token's position", Engine(REVERSE, {"off-by-one": at(7)}).decode(PROMPT, 8), "off-by-one", "k0")
    judge("positions by no rule", Engine(REVERSE, {"scattered": after(5)}).decode(PROMPT, 8), "wrong-position", "k0", says="follow no rule")


def padding():
    """A text in a batch with longer ones, padded on the left: positions count from its first token, and the padding is masked."""
    for weights in (True, False):
        for pads, at in ((3, 1), (3, 0), (1, 1), (3, None), (1, 0)):
            def engine(**bugs):
                return Engine(AUSTEN, {name.replace("_", "-"): when for name, when in bugs.items()}, pads=pads, pads_at=at).decode([0] * pads + PROMPT, 8)
            name = f"{pads} tokens of padding at {at}"
            by_rows = at == 1 or (at == 0 and pads > 1)  # else nothing but the mask tells that they are padding
            judge(name, engine(), "CLEAN", weights=weights, right_claims=False, prompt="bcde>")
            judge(name, engine(), "CLEAN", HF, weights=weights, right_claims=False)
            if weights and by_rows:
                judge(name, engine(), "CLEAN", "k0", right_claims=False, says="")
                judge(name, engine(), "CLEAN", ROWS, right_claims=False)
                judge(name + ", as the column does not say", engine(), "position-column", "k0")
                judge(name + ", seen", engine(padding_unmasked=after(0)), "padding-unmasked", ROWS, right_claims=False)
            if by_rows:
                judge(name + ", seen", engine(padding_unmasked=after(0)), "padding-unmasked", weights=weights, right_claims=False)
                judge(name + ", seen in decode", engine(padding_unmasked=after(pads + 5)), "padding-unmasked", weights=weights, right_claims=False)
            if pads > 1 or at == 0:  # one row that is shut out may be masked by mistake
                judge(name + ", counted", engine(padding_counted=after(0)), "padding-counted" if pads > 1 else "wrong-rows", weights=weights, right_claims=False)
            judge(name + ", counted in decode", engine(padding_counted=after(pads + 5)), "padding-counted", weights=weights, right_claims=False)
            judge(name + ", then 0", engine(reset_to_zero=after(pads + 5)), "reset-to-zero", weights=weights, right_claims=False)
            judge(name + ", then one too far", engine(off_by_one=after(pads + 5)), "off-by-one" if pads > 1 else "padding-counted", weights=weights, right_claims=False, says="read after the append")
    judge("a length read one too short", Engine(AUSTEN, {"behind": after(3)}).decode(PROMPT, 8), "wrong-position", "k0", right_claims=False, says="length - 1")


def heads():
    for model in (REVERSE, AUSTEN):
        for step in (0, 5, 8):
            for logged in ("k0", ROWS, HF, EVERYTHING):
                judge(f"heads interleaved in the cache from step {step}", Engine(model, {"heads-interleaved": after(step)}).decode(PROMPT, 8), "heads-interleaved", logged)
            for logged in (ROWS, HF, EVERYTHING):
                judge(f"heads interleaved, logged as projected, from step {step}", Engine(model, {"heads-interleaved": after(step)}, as_projected=True).decode(PROMPT, 8), "heads-interleaved", logged)
    judge("heads interleaved in the middle", Engine(AUSTEN, {"heads-interleaved": at(8)}, as_projected=True).decode(PROMPT, 8), "heads-interleaved")
    judge("heads interleaved from the middle", Engine(AUSTEN, {"heads-interleaved": after(8)}, as_projected=True).decode(PROMPT, 8), "heads-interleaved", weights=False)


def attention():
    last = lambda s, layer: layer == 3 and s >= 7
    judge("a scale wrong in the last layer", Engine(AUSTEN, {"wrong-scale": last}).decode(PROMPT, 8), "wrong-scale", HF)
    judge("rows not stored", Engine(REVERSE, {"row-never-written": after(7)}).decode(PROMPT, 8), "row-never-written", "k0")
    judge("one buffer, seen a step late", Engine(REVERSE, {"cross-layer-shared": after(9)}).decode(PROMPT, 10), "cross-layer-shared", ROWS)
    for weights in (True, False):
        unscaled = Engine(AUSTEN).decode(PROMPT, 6)
        for line in unscaled.log:
            line["heads"] = [(l, h, q, s * np.sqrt(unscaled.dim), w, o) for l, h, q, s, w, o in line["heads"]]
        judge("scores logged unscaled", unscaled, "scores-column", weights=weights)


def published():
    """Attention as it is published: weights [layer][head][T][T] as text of few decimals, and tokens as texts."""
    engine = Engine(REVERSE).decode(PROMPT, 6)
    T = len(engine.log)
    all_weights = np.zeros((engine.n_layer, engine.n_head, T, T))
    for i, line in enumerate(engine.log):
        for layer, head, _, _, weights, _ in line["heads"]:
            all_weights[layer, head, i, : i + 1] = weights
    texts = {i: t for t, i in json.load(open(REVERSE + "/vocab.json")).items()}
    tokens = [texts[line["token"]] for line in engine.log]
    source, path = os.path.join(FOLDER, "published.json"), os.path.join(FOLDER, "published.db")
    for decimals in (2, 3, 4, 17):
        rounded = np.round(all_weights, decimals).tolist()
        for name, content in (("tokens", {"tokens": tokens, "attention": rounded}),
                              ("a bertviz view", {"attention": [{"name": None, "attn": rounded, "left_text": tokens, "right_text": tokens}]})):
            for model in (["-m", REVERSE], []):
                json.dump(content, open(source, "w"))
                made = subprocess.run([KVSTEP, "import", source, "-o", path, "--force"] + model, capture_output=True, text=True)
                run = check(path, None) if made.returncode == 0 else {"verdict": made.stderr, "findings": []}
                shown = [row[0] for row in sqlite3.connect(path).execute("SELECT t.text FROM step JOIN token AS t USING (token) ORDER BY step")] if made.returncode == 0 else []
                expected = [t.replace("Ċ", "\\n") for t in tokens]
                report(f"{name}, {decimals} decimals, {'with a model' if model else 'alone'}", run["verdict"] == "clean" and shown == expected,
                       f"{run['verdict']} {shown} {[f['sentence'] for f in run['findings']]}")


for part in (right_runs, tokens_and_context, sampled, positions, padding, heads, attention, published):
    part()
sys.exit(failed > 0)
