"""docs_examples.py: runs every command of a page's ```console blocks and compares what it prints with what the page says. Arguments:
the kvstep binary and pages. A line that begins with "$ " is a command, "> " goes on with it, all others are its output."""
import difflib
import os
import subprocess
import sys
import tempfile


def examples(path):
    """(command, expected lines) of each command on the page."""
    inside, command, expected = False, None, []
    with open(path, encoding="utf-8") as page:
        for line in page.read().split("\n"):
            if line == "```console":
                inside = True
            elif inside and (line == "```" or line.startswith("$ ")):
                if command is not None:
                    yield command, expected
                command, expected = (line[2:], []) if line.startswith("$ ") else (None, [])
                inside = line != "```"
            elif inside and command is not None and line.startswith("> ") and not expected:
                command += "\n" + line[2:]
            elif inside:
                expected.append(line)


def main(kvstep, pages):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    number = failed = 0
    with tempfile.TemporaryDirectory() as folder:  # ./kvstep is the binary under test, whatever its name
        os.symlink(os.path.abspath(kvstep), os.path.join(folder, "kvstep"))
        for name in ("traces", "examples"):
            os.symlink(os.path.join(root, name), os.path.join(folder, name))
        for page in pages:
            for command, expected in examples(page):
                number += 1
                environment = dict(os.environ, LC_ALL="C.UTF-8")
                done = subprocess.run(command, shell=True, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
                printed = [line.rstrip() for line in done.stdout.decode("utf-8", "replace").rstrip("\n").split("\n")]
                good = printed == expected
                failed += not good
                first = command.split("\n")[0]
                print(f"{'ok' if good else 'not ok'} {number} - {os.path.basename(page)}: {first}")
                if not good:
                    print("\n".join(difflib.unified_diff(expected, printed, "the page", "printed", lineterm="")))
    if number == 0:
        print("not ok 1 - there is no example on these pages")
        failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
