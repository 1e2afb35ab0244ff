"""trace_views.py TRACE EXTENSION: a trace through Python's sqlite3, the views in plain SQL and with the extension.

Every number of attention, cache and query_vector is compared with the BLOB it comes from. Exit status 0: they agree. 77: this Python cannot load extensions (the plain views were still read).
"""
import sqlite3
import struct
import sys

VIEWS = ["attention", "cache", "query_vector", "logit", "rule", "head_summary", "step_summary"]


def rows(db, view):
    return sorted(db.execute(f"SELECT * FROM {view}").fetchall(), key=repr)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-12
    return a == b


db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
plain = {view: rows(db, view) for view in VIEWS}
assert plain["attention"], "the trace is empty"


def floats(blob):
    return list(struct.unpack(f"<{len(blob) // 4}f", blob))


def column(sql, key):
    return [value for value, in db.execute(sql, key)]


# What the writer stored, bit for bit, against what the views make of it.
HEAD = "WHERE run = ? AND step = ? AND layer = ? AND head = ? ORDER BY"
for *key, q, scores, weights, out in db.execute("SELECT run, step, layer, head, q, scores, weights, out FROM head_step").fetchall():
    assert column(f"SELECT score FROM attention {HEAD} row", key) == floats(scores), key
    assert column(f"SELECT weight FROM attention {HEAD} row", key) == floats(weights), key
    assert column(f"SELECT q FROM query_vector {HEAD} dim", key) == floats(q), key
    assert column(f"SELECT out FROM query_vector {HEAD} dim", key) == floats(out), key
for *key, k, v in db.execute("SELECT run, layer, row, step, k, v FROM kv_row").fetchall():
    where = "FROM cache WHERE run = ? AND layer = ? AND row = ? AND step = ? ORDER BY head, dim"
    assert column(f"SELECT k {where}", key) == floats(k), key
    assert column(f"SELECT v {where}", key) == floats(v), key
if not hasattr(db, "enable_load_extension"):
    sys.exit(77)
db.enable_load_extension(True)
db.load_extension(sys.argv[2])
for view in VIEWS:
    fast = rows(db, view)
    assert len(fast) == len(plain[view]), view
    for a, b in zip(plain[view], fast):
        assert all(map(same, a, b)), (view, a, b)
