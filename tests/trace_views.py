"""trace_views.py TRACE EXTENSION: a trace through Python's sqlite3, the views in plain SQL and with the extension.

Exit status 0: they agree. 77: this Python cannot load extensions (the plain views were still read).
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
for run, step, layer, head, weights in db.execute("SELECT run, step, layer, head, weights FROM head_step").fetchall():
    wanted = list(struct.unpack(f"<{len(weights) // 4}f", weights))
    key = (run, step, layer, head)
    got = db.execute("SELECT weight FROM attention WHERE run = ? AND step = ? AND layer = ? AND head = ? ORDER BY row", key)
    assert [w for w, in got] == wanted, key
if not hasattr(db, "enable_load_extension"):
    sys.exit(77)
db.enable_load_extension(True)
db.load_extension(sys.argv[2])
for view in VIEWS:
    fast = rows(db, view)
    assert len(fast) == len(plain[view]), view
    for a, b in zip(plain[view], fast):
        assert all(map(same, a, b)), (view, a, b)
