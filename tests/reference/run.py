"""run.py: makes random models of many shapes, lets kvstep trace them, and checks every number of every trace.

Usage: run.py KVSTEP WORK_DIR [NAME ...]   (only the named cases, if any are named)
One line per check; the last line is `reference: N passed, N failed`; exit 1 if any failed.
"""
import os
import shlex
import shutil
import subprocess
import sys
import time

import check_trace
import random_model

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TEXT = "the rain in 1797 on the plain\n"
WORD = "theinart"  # for vocabularies that hold little more than the alphabet
FULL = "12345678"  # no two of these are ever merged: 8 tokens

# name, options of random_model.py, prompt, options of `kvstep run`. Odd head sizes and vocabularies are there because
# kernels work in groups of 8 or 16 numbers and have to finish the rest by hand.
CASES = [
    ("plain", "--n-layer 2 --n-head 2 --head-dim 16", TEXT, "-n 12"),
    ("one-head-of-9", "--n-layer 1 --n-head 1 --head-dim 9 --n-vocab 61 --activation gelu", WORD, "-n 12"),
    ("head-17-f16", "--n-layer 3 --n-head 3 --head-dim 17 --n-vocab 301 --dtype F16 --activation relu", TEXT, "-n 12"),
    ("head-33-bf16", "--n-layer 4 --n-head 5 --head-dim 33 --n-vocab 403 --dtype BF16 --n-inner 201", TEXT, "-n 8"),
    ("head-64-untied", "--n-layer 2 --n-head 12 --head-dim 64 --n-vocab 517 --untied --activation gelu_pytorch_tanh",
     TEXT, "-n 8"),
    ("deep-12x12", "--n-layer 12 --n-head 12 --head-dim 8 --n-vocab 331 --prefix --attn-bias --n-ctx 63", TEXT, "-n 8"),
    ("linear-shards", "--n-layer 3 --n-head 4 --head-dim 24 --linear --shards 3 --prefix --untied", TEXT, "-n 12"),
    ("f16-odd-bytes", "--n-layer 2 --n-head 3 --head-dim 11 --n-vocab 311 --dtype F16 --attn-bias --n-ctx 61 --untied",
     TEXT, "-n 12"),
    ("bf16-linear-shards", "--n-layer 4 --n-head 2 --head-dim 25 --dtype BF16 --linear --shards 2 --activation gelu",
     TEXT, "-n 12"),
    ("inverse-layer-idx", "--n-layer 6 --n-head 2 --head-dim 40 --inverse-layer-idx --eps 1e-3", TEXT, "-n 12"),
    ("no-scale", "--n-layer 2 --n-head 3 --head-dim 10 --no-scale --n-inner 7", TEXT, "-n 12"),
    ("no-scale-inverse", "--n-layer 3 --n-head 2 --head-dim 13 --no-scale --inverse-layer-idx", TEXT, "-n 12"),
    ("sampled", "--n-layer 2 --n-head 4 --head-dim 15 --activation gelu", TEXT, "-n 20 --temperature 0.9 --seed 7"),
    ("one-token-prompt", "--n-layer 2 --n-head 2 --head-dim 12", "1", "-n 20"),
    ("off-by-one", "--n-layer 3 --n-head 2 --head-dim 20", FULL, "-n 16 --fault off-by-one --fault-from 10"),
    ("reset-to-zero", "--n-layer 3 --n-head 2 --head-dim 20", FULL, "-n 16 --fault reset-to-zero --fault-from 10"),
    ("skip-wpe", "--n-layer 3 --n-head 2 --head-dim 20", FULL, "-n 16 --fault skip-wpe --fault-from 10"),
    ("full-context", "--n-layer 2 --n-head 3 --head-dim 14 --n-ctx 23", FULL, "-n 15"),
]
# Models of the repository: name, prompt, options of `kvstep run`.
BUILTINS = [
    ("austen", "It is a truth universally acknowledged, that", "-n 24"),
    ("reverse", "position>", "-n 12"),
]


def run_kvstep(kvstep, model, prompt, options, trace, level="full"):
    """None, or what went wrong."""
    if os.path.exists(trace):
        os.remove(trace)
    command = [kvstep, "run", "-m", model, "-p", prompt, *shlex.split(options), "-o", trace, "--log", level]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().splitlines() or ["(silent)"]
        return f"kvstep exited with {done.returncode}: {message[0]}"
    return None


def steps_in(trace):
    db = check_trace.sqlite3.connect(f"file:{trace}?mode=ro", uri=True)
    try:
        return db.execute("SELECT count(*) FROM step").fetchone()[0]
    finally:
        db.close()


def expectation(options):
    """What check_trace must expect of `kvstep run`'s options: its keyword arguments."""
    words = shlex.split(options)
    if "--fault" not in words:
        return {}
    return {"expect_fault": words[words.index("--fault") + 1],
            "fault_from": int(words[words.index("--fault-from") + 1])}


def verdict(trace, model, level, expected):
    """(passed, one line to print)."""
    try:
        report = check_trace.check(trace, model, level=level, **expected)
    except (OSError, ValueError, KeyError, IndexError, check_trace.sqlite3.Error) as error:
        return False, str(error)
    if not report.worst:
        return False, "nothing was compared"
    quantity, (error, where) = max(report.worst.items(), key=lambda item: item[1][0])
    if report.violations:
        return False, f"{len(report.violations)} wrong; first: {report.violations[0]}"
    return True, f"{steps_in(trace)} steps, worst {error:.1e} in {quantity} at {where}"


def one_case(kvstep, work, name, model, prompt, options, level="full", n_ctx=None):
    trace = os.path.join(work, f"{name}.db")
    started = time.monotonic()
    error = run_kvstep(kvstep, model, prompt, options, trace, level)
    if n_ctx and not error and steps_in(trace) == n_ctx - 1:
        # The last token chosen need not have been fed; one more then fills the context.
        options = f"-n {n_ctx - len(FULL) + 1}"
        error = run_kvstep(kvstep, model, prompt, options, trace, level)
    if error:
        passed, line = False, error
    else:
        passed, line = verdict(trace, model, level, expectation(options))
        if passed and n_ctx and steps_in(trace) != n_ctx:
            passed, line = False, f"{steps_in(trace)} steps, but n_ctx is {n_ctx}"
    print(f"{'ok  ' if passed else 'FAIL'} {name:20} {time.monotonic() - started:5.1f} s  {line}", flush=True)
    return passed


def main():
    if len(sys.argv) < 3:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    kvstep, work, chosen = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    unknown = set(chosen) - {case[0] for case in CASES} - {name for name, _, _ in BUILTINS} - {"steps-only", "no-layers"}
    if unknown or not os.access(kvstep, os.X_OK):
        print(f"run.py: no such case: {', '.join(unknown)}" if unknown else f"run.py: cannot run {kvstep}", file=sys.stderr)
        return 2
    os.makedirs(work, exist_ok=True)
    results = []

    def case(name, *args, **kwargs):
        if not chosen or name in chosen:
            results.append(one_case(kvstep, work, name, *args, **kwargs))

    plain = os.path.join(work, "plain")
    for seed, (name, shape, prompt, options) in enumerate(CASES):
        model = os.path.join(work, name)
        o = random_model.make_parser().parse_args([model, "--seed", str(seed), *shlex.split(shape)])
        if not chosen or name in chosen or model == plain:  # the two cases below want "plain"
            shutil.rmtree(model, ignore_errors=True)
            random_model.write_model(model, o)
        case(name, model, prompt, options, n_ctx=o.n_ctx if name == "full-context" else None)
    case("no-layers", plain, TEXT, "-n 12", level="attention")
    case("steps-only", plain, TEXT, "-n 12", level="steps")
    for name, prompt, options in BUILTINS:
        model = os.path.join(ROOT, "examples", "models", name)
        if os.path.isdir(model):
            case(name, model, prompt, options)
        else:
            print(f"--   {name:20} not there: {os.path.relpath(model, ROOT)}")
    print(f"reference: {results.count(True)} passed, {results.count(False)} failed")
    return 1 if results.count(False) else 0


if __name__ == "__main__":
    sys.exit(main())
