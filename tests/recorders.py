"""recorders.py: the example recorders (examples/recorders) and `kvstep import`, against kvstep's own traces.

Usage: recorders.py KVSTEP BUILD_DIR WORK_DIR. One TAP line per test. The engines share no code with kvstep, so their numbers must agree
to float32's accuracy only: 1e-4 of each vector's largest number.
"""
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys

import numpy as np

KVSTEP, BUILD, WORK = map(os.path.abspath, sys.argv[1:4])
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORDERS = os.path.join(ROOT, "examples", "recorders")
MODELS = {"reverse": "position>", "austen": "It is a truth"}
LIMIT = 1e-4
VECTORS = {"kv_row": ("layer, row, step", "k, v"), "head_step": ("step, layer, head", "q, scores, weights, out"),
           "layer_step": ("step, layer", "x_in, attn_out, x_mid, mlp_out, x_out"), "step_vector": ("step", "wte, wpe, x, logits")}


class Skip(Exception):
    """What is missing here."""


def run(*command, code=0):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300, check=False, cwd=WORK)
    assert done.returncode == code, f"{command} exited with {done.returncode}: {done.stdout[-300:]}{done.stderr[-600:]}"
    return done.stdout, done.stderr


def kvstep(*command, code=0):
    return run(KVSTEP, *command, code=code)


def model_folder(model):
    return os.path.join(ROOT, "examples", "models", model)


def python_engine(model, trace, *options):
    prompt = [] if "--ids" in options else [MODELS[model]]
    return run(sys.executable, "-B", os.path.join(RECORDERS, "python", "engine.py"), model_folder(model), *prompt, "-o", trace, *options)


def c_engine(model, trace, *options):
    words = ["16", *options[options.index("--bug") + 1:]] if "--bug" in options else ["16"]
    return run(os.path.join(BUILD, "examples", "recorders", "c", "engine"), model_folder(model), MODELS[model], trace, *words)


def node():
    """A node that has an SQLite, or Skip."""
    for name in filter(None, (os.environ.get("NODE"), "node")):
        if shutil.which(name) and subprocess.run([name, os.path.join(RECORDERS, "javascript", "engine.mjs"), model_folder("reverse"), "a",
                                                  "-n", "0", "-o", path("probe.db")], capture_output=True, check=False).returncode == 0:
            os.remove(path("probe.db"))
            return name
    raise Skip("no node with an SQLite (node 22.5, or better-sqlite3)")


def js_engine(model, trace, *options):
    return run(node(), os.path.join(RECORDERS, "javascript", "engine.mjs"), model_folder(model), MODELS[model], "-o", trace, *options)


def path(name):
    return os.path.join(WORK, name)


def fresh(name):
    if os.path.exists(path(name)):
        os.remove(path(name))
    return path(name)


def opened(trace):
    return sqlite3.connect(f"file:{trace}?mode=ro", uri=True)


def one(db, sql, *values):
    return db.execute(sql, values).fetchone()[0]


def token_ids(db):
    return ",".join(str(t) for t, in db.execute("SELECT token FROM step WHERE run = 1 AND source = 'prompt' ORDER BY step"))


def own_trace(model):
    trace = path(f"own-{model}.db")
    if not os.path.exists(trace):
        kvstep("run", "-m", model, "-p", MODELS[model], "-n", "16", "--log", "full", "-o", trace)
    return trace


def worst_difference(a, b, steps):
    """The largest relative difference of any vector in the first `steps` steps of run 1, and how many were compared."""
    worst, count = 0.0, 0
    for table, (keys, columns) in VECTORS.items():
        sql = f"SELECT {keys}, {columns} FROM {table} WHERE run = 1 AND step < {steps} ORDER BY {keys}"
        left, right = a.execute(sql).fetchall(), b.execute(sql).fetchall()
        assert len(left) == len(right) > 0, (table, len(left), len(right))
        width = len(keys.split(","))
        for x, y in zip(left, right):
            assert x[:width] == y[:width], (table, x[:width], y[:width])
            for blob, other in zip(x[width:], y[width:]):
                p, q = np.frombuffer(blob, "<f4"), np.frombuffer(other, "<f4")
                assert p.shape == q.shape, (table, x[:width], p.shape, q.shape)
                worst, count = max(worst, float(np.abs(p - q).max() / max(np.abs(q).max(), 1e-3))), count + 1
    return worst, count


def agrees_with_kvstep(engine, model, **more):
    """A correct run against kvstep's own: every vector, every step, every event of each step, the best tokens."""
    own = opened(own_trace(model))
    trace = fresh(f"{engine.__name__}-{model}.db")
    engine(model, trace, *(["--ids", token_ids(own)] if more.get("ids") else []))
    db = opened(trace)
    steps = min(one(d, "SELECT count(*) FROM step WHERE run = 1") for d in (own, db))
    assert steps > 15
    worst, count = worst_difference(db, own, steps)
    assert worst < LIMIT and count > 500, (worst, count)
    columns = "step, token, source, cache_length_before, position, cache_length_after"
    for what, wanted in ((columns, "step"), ("step, phase, layer, cache_length", "event")):
        sql = f"SELECT {what} FROM {wanted} WHERE run = 1 AND step < {steps} ORDER BY step" + (", seq" if wanted == "event" else "")
        assert db.execute(sql).fetchall() == own.execute(sql).fetchall(), wanted
    for sql in ("SELECT logprob FROM step WHERE step BETWEEN 1 AND ? ORDER BY step",
                "SELECT probability FROM top_token WHERE rank = 1 AND step <= ? ORDER BY step"):
        a, b = (np.array([x for x, in d.execute(sql, (steps - 1,))], float) for d in (db, own))
        assert a.shape == b.shape and np.abs(a - b).max() < 1e-3, sql
    assert one(db, "SELECT finished_at IS NOT NULL AND fault IS NULL AND model_sha256 = ? FROM run", one(own, "SELECT model_sha256 FROM run"))
    return trace


def is_one_file(trace):
    assert not any(os.path.exists(trace + end) for end in ("-wal", "-shm", "-journal"))


# ---- tests ----------------------------------------------------------------------------------------------------------


def embedded(file, begin, end):
    with open(os.path.join(RECORDERS, file), encoding="utf-8") as source:
        return source.read().split(begin)[1].split(end)[0]


def test_tables_are_the_contract():
    """What a lone recorder makes is, table for table, what schema.sql makes; blanks and comments apart."""
    def normal(sql):
        return re.sub(r"\s+", "", re.sub(r"--[^\n]*", "", sql))

    with open(os.path.join(ROOT, "src", "trace", "schema.sql"), encoding="utf-8") as file:
        schema = sqlite3.connect(":memory:")
        schema.executescript(file.read())
    wanted = dict(schema.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND type IN ('table', 'index')"))
    for text in (embedded("python/kvstep_recorder.py", 'TABLES = """', '"""'), embedded("javascript/kvstep_recorder.mjs", "TABLES = `", "`")):
        lone = sqlite3.connect(":memory:")
        lone.executescript(text)
        made = dict(lone.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))
        assert set(wanted) - set(made) == {"byte_list", "float_scale"}, set(wanted) ^ set(made)  # those are for plain views alone
        for name, sql in made.items():
            assert normal(sql) == normal(wanted[name]), name
        for pragma in ("application_id", "user_version"):
            assert one(lone, f"PRAGMA {pragma}") == one(schema, f"PRAGMA {pragma}")


def test_python_reverse():
    agrees_with_kvstep(python_engine, "reverse", ids=True)


def test_python_austen():
    is_one_file(agrees_with_kvstep(python_engine, "austen", ids=True))


def test_c_reverse():
    agrees_with_kvstep_but_modes(c_engine, "reverse")


def test_c_austen():
    is_one_file(agrees_with_kvstep_but_modes(c_engine, "austen"))


def test_javascript_reverse():
    is_one_file(agrees_with_kvstep_but_modes(js_engine, "reverse"))


def agrees_with_kvstep_but_modes(engine, model):
    """These feed the prompt's tokens one by one: the same numbers, all in mode `decode`."""
    node() if engine is js_engine else None
    trace = agrees_with_kvstep(engine, model)
    assert one(opened(trace), "SELECT group_concat(DISTINCT mode) FROM step") == "decode"
    return trace


def test_kvstep_opens_a_lone_recorders_trace():
    """Tables alone: kvstep brings the views along, with the same lines as in its own trace."""
    trace = fresh("lone.db")
    python_engine("reverse", trace, "-n", "8")
    own = fresh("lone-own.db")
    kvstep("run", "-m", "reverse", "-p", MODELS["reverse"], "-n", "8", "--log", "full", "-o", own)
    assert "17: 9 prefill, 8 decode" in kvstep("info", trace)[0]
    out = kvstep("show", trace, "--step", "10", "--layer", "1", "--head", "1")[0]
    assert "t = cache length read BEFORE the append = 10" in out and "0.994" in out
    for view in ("attention", "cache", "query_vector", "logit", "rule", "head_summary", "step_summary"):
        counts = [kvstep("sql", "-o", "csv", t, f"SELECT count(*), count(run) FROM {view}")[0] for t in (trace, own)]
        assert counts[0] == counts[1] and "\n0," not in counts[0], (view, counts)
    for column, view in (("entropy", "head_summary"), ("self_weight", "head_summary"), ("entropy", "step_summary")):
        sums = [float(kvstep("sql", "-o", "csv", t, f"SELECT total({column}) FROM {view}")[0].split()[1]) for t in (trace, own)]
        assert abs(sums[0] - sums[1]) < 1e-3 * abs(sums[1]), (column, sums)
    keys = path("lone.keys")
    with open(keys, "w", encoding="utf-8") as file:
        file.write(":step 10\n:layer 1\n:head 1\nview-map\n:save-screen lone.txt\n")
    kvstep("view", trace, "--keys", keys)
    with open(path("lone.txt"), encoding="utf-8") as file:
        shown = file.read()
        assert "step 10" in shown and "engine.py" in kvstep("info", trace)[0], shown


def test_views_of_a_full_schema():
    """With --schema the trace has the views for any SQLite, and they say what the BLOBs say."""
    trace = fresh("full.db")
    python_engine("reverse", trace, "-n", "4", "--schema", os.path.join(ROOT, "src", "trace", "schema.sql"))
    extension = os.path.join(BUILD, "kvstep.so")
    if os.environ.get("KVSTEP_SAN"):
        raise Skip("a sanitized extension cannot be loaded into another program")
    done = subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tests", "trace_views.py"), trace, extension], check=False,
                          capture_output=True, text=True)
    assert done.returncode in (0, 77), done.stderr


def test_runs_of_two_engines_in_one_file():
    trace = fresh("both.db")
    python_engine("reverse", trace)
    kvstep("run", "-m", "reverse", "-p", MODELS["reverse"], "-o", trace, "--append")
    c_engine("reverse", trace)
    python_engine("reverse", trace, "--append", "--bug", "off-by-one")
    db = opened(trace)
    assert [e for e, in db.execute("SELECT engine FROM run ORDER BY run")] == ["engine.py", "kvstep", "engine.c", "engine.py"]
    out, _ = run(sys.executable, "-B", os.path.join(RECORDERS, "python", "engine.py"), model_folder("reverse"), "a", "-o", trace, code=1)
    assert one(opened(trace), "SELECT count(*) FROM run") == 4 and out == ""


# What each bug must have left in the trace of 9 prompt tokens of `reverse` (austen for the last): a query that says 1.
P = "(SELECT count(*) FROM step WHERE source = 'prompt')"
OFF = "SELECT min(position IS {0}) AND count(*) > 3 FROM step WHERE step >= 9"
SIGNATURES = {
    "off-by-one": OFF.format("cache_length_before + 1"),
    "reset-to-zero": OFF.format("0"),
    "constant-position": OFF.format("9"),
    "skip-wpe": OFF.format("NULL"),
    "position-jump": OFF.format("cache_length_before + 8"),
    "attend-before-append": "SELECT min(length(scores) / 4 = cache_length_before) FROM head_step JOIN step USING (run, step) WHERE step >= 9",
    "overwrite-last": "SELECT max(row) = 8 AND count(*) > 5 FROM kv_row WHERE layer = 0 AND step >= 9",
    "k-without-v": "SELECT min(v = zeroblob(192) AND k <> v) FROM kv_row WHERE step >= 9",
    "row-never-written": "SELECT min(v = zeroblob(192) AND k = v) FROM kv_row WHERE step >= 9",
    "stale-cache": "SELECT cache_length_before = 9 FROM step WHERE step = 0",
    "prompt-twice": "SELECT group_concat(token) FILTER (WHERE step < 9) = group_concat(token) FILTER (WHERE step BETWEEN 9 AND 17) FROM step",
    "last-token-twice": "SELECT (SELECT token FROM step WHERE step = 8) = token FROM step WHERE step = 9",
    "token-skipped": "SELECT t.token <> s.token FROM step AS s JOIN top_token AS t ON t.step = 8 AND rank = 1 WHERE s.step = 9",
    "no-rollback": "SELECT count(*) = 1 FROM step AS s JOIN top_token AS t ON t.step = 8 AND rank = 1 AND t.token = s.token WHERE s.step = 11",
    "mask-corner": "SELECT min(first_weight = 1 AND max_row = 0) FROM head_summary WHERE step >= 9",
    "prefill-unmasked": "SELECT min(length(scores) = 36) FROM head_step WHERE step < 9",
    "wrong-scale": None,
    "softmax-extent": "SELECT min(length(weights) = 4 * 32) FROM head_step WHERE step >= 9",
    "heads-interleaved": None,
    "cross-layer-length": "SELECT min(row = cache_length_before + layer) FROM kv_row JOIN step USING (run, step) WHERE step >= 9",
    "context-overflow": "SELECT min(position = 127 AND cache_length_after = 128) AND count(*) > 8 FROM step WHERE step >= 128",
}


def score_factor(db, interleaved):
    """score / (q·K[row]) in the last step, layer 0: what the scale really was."""
    n_head, dim, step = db.execute("SELECT n_head, head_dim, (SELECT max(step) FROM step) FROM run").fetchone()
    keys = {row: np.frombuffer(k, "<f4") for row, k in db.execute("SELECT row, k FROM kv_row WHERE layer = 0")}
    factors = []
    for head, q, scores in db.execute("SELECT head, q, scores FROM head_step WHERE layer = 0 AND step = ?", (step,)):
        for row, score in enumerate(np.frombuffer(scores, "<f4")):
            part = keys[row].reshape(dim, n_head)[:, head] if interleaved else keys[row].reshape(n_head, dim)[head]
            dot = float(part @ np.frombuffer(q, "<f4"))
            if abs(dot) > 0.5:
                factors.append(score / dot)
    return np.array(factors) * np.sqrt(dim)


def test_bugs_are_really_made():
    text = embedded("python/engine.py", "BUGS = (", ")")
    names = re.findall(r"[a-z]+(?:-[a-z0-9]+)+", text)
    assert sorted(names) == sorted(SIGNATURES)
    for bug, sql in SIGNATURES.items():
        model, count = ("austen", "140") if bug == "context-overflow" else ("reverse", "16")
        trace = fresh(f"bug-{bug}.db")
        python_engine(model, trace, "--bug", bug, "-n", count)
        _, err = kvstep("info", trace)
        assert err == "", (bug, err)
        summary = kvstep("sql", "-o", "csv", trace, sql or "SELECT 1")[0].split()
        assert summary[-1] == "1", (bug, summary)
    for bug, factor in (("wrong-scale", np.sqrt(12)), ("heads-interleaved", 1)):
        factors = score_factor(opened(path(f"bug-{bug}.db")), bug == "heads-interleaved")
        assert len(factors) > 10 and np.abs(factors / factor - 1).max() < 1e-3, bug


def test_bug_from_and_float16():
    trace = fresh("from.db")
    python_engine("reverse", trace, "--bug", "off-by-one", "--bug-from", "12")
    assert one(opened(trace), "SELECT min(step) FROM step WHERE position <> cache_length_before") == 12
    narrow = fresh("float16.db")
    python_engine("reverse", narrow, "--float16-cache")
    db, own = opened(narrow), opened(own_trace("reverse"))
    worst, _ = worst_difference(db, own, 12)
    assert 1e-5 < worst < 2e-2, worst
    k = np.frombuffer(one(db, "SELECT k FROM kv_row WHERE layer = 1 AND row = 5"), "<f4")
    assert (k == k.astype(np.float16)).all()


def test_c_and_javascript_bugs():
    names = ["off-by-one", "reset-to-zero", "constant-position", "skip-wpe", "position-jump", "attend-before-append", "overwrite-last",
             "k-without-v", "row-never-written"]
    engines = [c_engine]
    try:
        node()
        engines.append(js_engine)
    except Skip:
        pass
    for engine in engines:
        for bug in names:
            trace = fresh(f"{engine.__name__}-{bug}.db")
            engine("reverse", trace, "--bug", bug)
            assert kvstep("sql", "-o", "csv", trace, SIGNATURES[bug])[0].split()[-1] == "1", (engine.__name__, bug)


def test_check_names_the_bugs():
    """What `kvstep check` says of an engine that is none of kvstep's: each bug by its name, and nothing of a run that is right."""
    if subprocess.run([KVSTEP, "help", "check"], capture_output=True, check=False).returncode != 0:
        raise Skip("this kvstep has no check")
    schema = ["--schema", os.path.join(ROOT, "src", "trace", "schema.sql")]
    for bug in [None, "float16-cache", *SIGNATURES]:
        trace = fresh(f"check-{bug}.db")
        options = [] if bug is None else ["--float16-cache"] if bug == "float16-cache" else ["--bug", bug]
        python_engine("austen", trace, "-n", "140" if bug == "context-overflow" else "16", *options, *schema)
        clean = bug in (None, "float16-cache")
        out, _ = kvstep("check", trace, "-m", "austen", code=0 if clean else 1)
        named = re.findall(r"^  ([a-z0-9-]+)  \(", out, re.M)
        assert named == ([] if clean else [bug]), (bug, out)


def test_the_contexts_end():
    trace = fresh("end.db")
    python_engine("reverse", trace, "--bug", "reset-to-zero", "-n", "100")
    assert one(opened(trace), "SELECT count(*) FROM step") == 32 == one(opened(trace), "SELECT count(*) FROM kv_row WHERE layer = 1")
    trace = fresh("end-early.db")
    _, err = python_engine("reverse", trace, "--bug", "position-jump", "-n", "100")
    assert one(opened(trace), "SELECT count(*) FROM step") == one(opened(trace), "SELECT count(*) FROM kv_row WHERE layer = 1")


# ---- kvstep import ----


class Dump:
    """A kvstep trace's run 1 as the arrays that another engine would have."""

    def __init__(self, trace):
        db = opened(trace)
        self.L, self.H, self.E, self.D = db.execute("SELECT n_layer, n_head, n_embd, head_dim FROM run").fetchone()
        steps = db.execute("SELECT token, position FROM step ORDER BY step").fetchall()
        self.T, self.P = len(steps), one(db, "SELECT count(*) FROM step WHERE mode = 'prefill'")
        self.tokens, self.positions = (np.array(x) for x in zip(*steps))

        def stacked(sql):
            return np.array([np.frombuffer(x, "<f4") for x, in db.execute(sql)])

        def by_layer(column, table, order):
            return stacked(f"SELECT {column} FROM {table} ORDER BY layer, {order}").reshape(self.L, self.T, self.E)

        self.k, self.v = (by_layer(c, "kv_row", "row") for c in "kv")
        self.x_in, self.x_out = (by_layer(c, "layer_step", "step") for c in ("x_in", "x_out"))
        self.q, self.out = (stacked(f"SELECT {c} FROM head_step ORDER BY layer, head, step").reshape(self.L, self.H, self.T, self.D)
                            for c in ("q", "out"))
        self.logits = stacked("SELECT logits FROM step_vector ORDER BY step")
        self.weights = np.zeros((self.L, self.H, self.T, self.T), "f4")
        self.scores = np.full_like(self.weights, -np.inf)
        for step, layer, head, scores, weights in db.execute("SELECT step, layer, head, scores, weights FROM head_step"):
            self.scores[layer, head, step, :step + 1] = np.frombuffer(scores, "<f4")
            self.weights[layer, head, step, :step + 1] = np.frombuffer(weights, "<f4")

    def heads(self, x):
        return x.reshape(self.L, self.T, self.H, self.D).transpose(0, 2, 1, 3)

    def hugging_face(self):
        arrays = {"input_ids": self.tokens[None], "position_ids": self.positions[None], "attentions": self.weights[:, None],
                  "scores": self.scores, "logits": self.logits[None].astype("f8"), "q": np.asfortranarray(self.q), "out": self.out,
                  "hidden_states": np.concatenate([self.x_in, self.x_out[-1:]])}
        for layer in range(self.L):
            arrays[f"past_key_values.{layer}.key"] = self.heads(self.k)[layer][None]
            arrays[f"past_key_values.{layer}.value"] = self.heads(self.v)[layer][None]
        return arrays

    def calls(self):
        """One list per call of the model: the prompt's first, then one token each."""
        first = [self.weights[:, None, :, :self.P, :self.P].tolist()]
        return first + [self.weights[:, None, :, s:s + 1, :s + 1].tolist() for s in range(self.P, self.T)]


def same_vectors(trace, number, table, columns, steps=None):
    keys = VECTORS[table][0]
    db = opened(trace)
    rows = one(db, f"SELECT count(*) FROM {table} WHERE run = 1")
    on = " AND ".join(f"a.{k} = b.{k}" for k in keys.split(", "))
    for column in columns.split():
        same = one(db, f"SELECT count(*) FROM {table} a JOIN {table} b ON {on} WHERE a.run = 1 AND b.run = ? AND a.{column} = b.{column}", number)
        assert same == (rows if steps is None else steps), (table, column, same, rows)


def test_import_gives_back_what_was_dumped():
    """A run dumped four ways and imported is bit for bit the run it came from."""
    trace = fresh("import.db")
    shutil.copy(own_trace("reverse"), trace)
    dump = Dump(trace)
    arrays = dump.hugging_face()
    np.savez(path("stored.npz"), **arrays)
    np.savez_compressed(path("packed.npz"), junk=np.zeros(3), **arrays)
    with open(path("lists.json"), "w", encoding="utf-8") as file:
        json.dump({name: array.tolist() for name, array in arrays.items()}, file)  # -Infinity and all
    singles = []
    for name, array in arrays.items():
        np.save(path(f"{name}.npy"), array)
        singles.append(path(f"{name}.npy"))
    for number, files in enumerate((["stored.npz"], ["packed.npz"], ["lists.json"], singles), 2):
        _, err = kvstep("import", *files, "-o", trace, "--append", "-m", "reverse", "--prompt-length", str(dump.P))
        assert ("array `junk` [3] is left out" in err) == (files == ["packed.npz"]), err
        for table, columns in (("kv_row", "k v"), ("head_step", "q scores weights out"), ("layer_step", "x_in"), ("step_vector", "x logits")):
            same_vectors(trace, number, table, columns)
        same_vectors(trace, number, "layer_step", "x_out", steps=dump.T)  # of two layers, the last one's is not in hidden_states
        db = opened(trace)
        for what, table in (("step, mode, token, source, cache_length_before, position, cache_length_after, logprob", "step"),
                            ("step, rank, token, logit, probability", "top_token")):
            first, second = (db.execute(f"SELECT {what} FROM {table} WHERE run = ? ORDER BY 1, 2", (n,)).fetchall() for n in (1, number))
            assert first == second, table
        assert db.execute("SELECT engine, fault, seed FROM run WHERE run = ?", (number,)).fetchone() == ("imported", None, None)
        assert one(db, "SELECT count(*) FROM event WHERE run = ?", number) == 0
    assert "steps       18: 9 prefill, 9 decode" in kvstep("info", trace)[0]


def test_import_by_calls():
    """Ragged lists per call, the cache in one array, fewer logits than steps, a last token that was not fed, no positions."""
    trace = fresh("calls.db")
    shutil.copy(own_trace("reverse"), trace)
    dump = Dump(trace)
    with open(path("calls.json"), "w", encoding="utf-8") as file:
        json.dump({"tokens": [*dump.tokens.tolist(), 3], "kv": np.stack([dump.k, dump.v], 1).tolist(), "attentions": dump.calls(),
                   "logits": dump.logits[dump.P - 1:].tolist(), "prompt_length": dump.P, "n_head": dump.H, "engine": "toy", "prompt": "hello"}, file)
    _, err = kvstep("import", "calls.json", "-o", trace, "--append", "-m", "reverse")
    assert "the last token was chosen, and not fed" in err and "no `position_ids`" in err, err
    same_vectors(trace, 2, "kv_row", "k v")
    same_vectors(trace, 2, "head_step", "weights")
    same_vectors(trace, 2, "step_vector", "logits", steps=dump.T - dump.P + 1)
    assert opened(trace).execute("SELECT engine, prompt FROM run WHERE run = 2").fetchone() == ("toy", "hello")


def test_import_without_a_model():
    """Tokens and layer 0's K, the least; names by --map; the views work on it."""
    dump = Dump(own_trace("reverse"))
    np.savez(path("least.npz"), ids=dump.tokens.astype("f8"), mine=dump.k[:1].astype("f2"), yours=dump.weights[:1] * 0 + 1)
    trace = fresh("least.db")
    kvstep("import", "least.npz", "-o", trace, "--map", "k=mine,attentions=yours", "--n-head", "4", "--name", "toy")
    db = opened(trace)
    assert db.execute("SELECT model, n_layer, n_head, n_embd, n_ctx, model_sha256 FROM run").fetchone() == ("toy", 1, 4, 48, dump.T, None)
    k = np.frombuffer(one(db, "SELECT k FROM kv_row WHERE row = 7"), "<f4")
    assert (k == dump.k[0, 7].astype("f2").astype("f4")).all() and one(db, "SELECT count(v) FROM kv_row") == 0
    # No mask at all: every row of every query is kept, since each has a weight.
    assert one(db, "SELECT min(length(weights)) FROM head_step") == 4 * dump.T
    assert one(db, "SELECT count(*) FROM attention WHERE weight = 1") == 4 * dump.T ** 2
    is_one_file(trace)
    kvstep("show", trace, "--step", "3")


# ---- the hooks of docs/recording.md ----


class Tensor:
    """As much of a torch tensor as the hooks use, around a numpy array."""

    def __init__(self, values):
        self.values, self.shape = np.asarray(values), np.asarray(values).shape

    def detach(self):
        return self

    float = cpu = detach

    def numpy(self):
        return self.values

    def reshape(self, *shape):
        return Tensor(self.values.reshape(*shape))

    def tolist(self):
        return self.values.tolist()

    def __getitem__(self, at):
        return self.values[at]


class Module:
    def __init__(self, **parts):
        self.hooks = []
        self.__dict__.update(parts)

    def register_forward_hook(self, hook):
        self.hooks.append(hook)
        return hook

    def called(self, args, out):
        for hook in self.hooks:
            hook(self, args, out)


def replay(model, cache_of, dump, all_logits):
    """Calls the hooks as a model would that computes what the dump has: first the prompt, then one token at a time."""
    body = model.transformer
    for first, end in [(0, dump.P)] + [(s, s + 1) for s in range(dump.P, dump.T)]:
        part = slice(first, end)
        body.wte.called((Tensor(dump.tokens[None, part]),), Tensor(dump.wte[None, part]))
        body.wpe.called((Tensor(dump.positions[None, part]),), Tensor(dump.wpe[None, part]))
        for layer, block in enumerate(body.h):
            q = dump.q[layer][:, part].transpose(1, 0, 2).reshape(end - first, -1)
            block.attn.c_attn.called((None,), Tensor(np.concatenate([q, dump.k[layer][part], dump.v[layer][part]], 1)[None]))
        caches = [[Tensor(dump.heads(x)[layer][None, :, :end]) for x in (dump.k, dump.v)] for layer in range(dump.L)]
        model.called((None,), Module(past_key_values=cache_of(caches), logits=Tensor(dump.logits[None, part if all_logits else slice(end - 1, end)]),
                                     attentions=[Tensor(dump.weights[layer][None, :, part, :end]) for layer in range(dump.L)]))


def test_hooks_of_the_documentation():
    """The page's code, run by a stand-in for torch that replays a known run, in each form that the cache has had."""
    with open(os.path.join(ROOT, "docs", "recording.md"), encoding="utf-8") as file:
        code = {}
        exec(file.read().split("```python\n")[1].split("```")[0], code)  # pylint: disable=exec-used
    sys.path.insert(0, os.path.join(RECORDERS, "python"))
    sys.dont_write_bytecode = True
    from kvstep_recorder import Recorder
    own = own_trace("reverse")
    dump, db = Dump(own), opened(own)
    dump.wte, dump.wpe = (np.array([np.frombuffer(x, "<f4") for x, in db.execute(f"SELECT {c} FROM step_vector ORDER BY step")]) for c in ("wte", "wpe"))
    forms = [lambda caches: Module(layers=[Module(keys=k, values=v) for k, v in caches]),
             lambda caches: Module(key_cache=[k for k, _ in caches], value_cache=[v for _, v in caches]), lambda caches: caches]
    for i, form in enumerate(forms):
        trace = fresh(f"hooks-{i}.db")
        recorder = Recorder(trace)
        recorder.begin_run(n_layer=dump.L, n_head=dump.H, n_embd=dump.E, n_ctx=32, n_vocab=28, engine="stand-in")
        blocks = [Module(attn=Module(c_attn=Module())) for _ in range(dump.L)]
        model = Module(transformer=Module(wte=Module(), wpe=Module(), h=blocks), config=Module(n_head=dump.H))
        code["watch"](model, recorder, dump.P)
        replay(model, form, dump, all_logits=i < 2)
        recorder.finish()
        got = opened(trace)
        for table, columns in (("kv_row", "layer, row, step, k, v"), ("head_step", "step, layer, head, q, weights"),
                               ("step_vector", "step, wte, wpe, x, " + ("logits" if i < 2 else "1")),
                               ("step", "step, mode, token, source, cache_length_before, position, cache_length_after")):
            sql = f"SELECT {columns} FROM {table} ORDER BY 1, 2, 3"
            assert got.execute(sql).fetchall() == db.execute(sql).fetchall(), (i, table)
        kept = [step for step, in got.execute("SELECT step FROM step_vector WHERE logits IS NOT NULL ORDER BY step")]
        assert kept == list(range(0 if i < 2 else dump.P - 1, dump.T))
        assert one(got, "SELECT logits FROM step_vector WHERE step = ?", dump.P - 1) == dump.logits[dump.P - 1].tobytes()


def main():
    os.makedirs(WORK, exist_ok=True)
    failed = 0
    tests = [(name[5:].replace("_", " "), test) for name, test in globals().items() if name.startswith("test_")]
    for i, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {i} - {name}", flush=True)
        except Skip as missing:
            print(f"ok {i} - {name} # SKIP {missing}", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"not ok {i} - {name}\n# {type(error).__name__}: {error} (line {error.__traceback__.tb_next.tb_lineno})", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
