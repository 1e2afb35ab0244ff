/* peers.c: other engines, where they are installed. llama-bench needs a model of its own: LLAMA_MODEL names a GGUF file. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>

/* The first number that a shell command prints; NaN where it fails. */
static double ask(const char *command) {
  double value = (double)NAN;
  FILE *answer = popen(command, "r");
  if (answer && fscanf(answer, "%lf", &value) != 1) value = (double)NAN;
  if (answer && pclose(answer) != 0) value = (double)NAN;
  return value;
}

static void peer(const char *name, const char *command) {
  double ms[5];
  for (int r = 0; r < 5; r++)
    if (isnan(ms[r] = ask(command))) return;
  bench_result result = bench_alone("peers", ms, 5, 1, "ms/token");
  snprintf(result.what, sizeof result.what, "%s", name);
  bench_add(&result);
}

/* A step of GPT-2 small is these products, whatever else it does. */
static const char torch[] = "/usr/bin/python3 - 2>/dev/null <<'END'\n"
                            "import time, torch\n"
                            "torch.set_grad_enabled(False)\n"
                            "shapes = [(768, 2304), (768, 768), (768, 3072), (3072, 768)] * 12 + [(768, 50257)]\n"
                            "w = [torch.randn(o, i) for i, o in shapes]\n"
                            "x = {768: torch.randn(1, 768), 3072: torch.randn(1, 3072)}\n"
                            "def step():\n"
                            "    start = time.perf_counter()\n"
                            "    for m in w: torch.nn.functional.linear(x[m.shape[1]], m)\n"
                            "    return time.perf_counter() - start\n"
                            "step()\n"
                            "print(1e3 * sorted(step() for _ in range(9))[4])\n"
                            "END";

void bench_peers(void) {
  peer("PyTorch, the matrix products alone", torch);
  if (getenv("LLAMA_MODEL"))
    peer("llama-bench -n 64, $LLAMA_MODEL",
         "llama-bench -m \"$LLAMA_MODEL\" -p 0 -n 64 -r 3 -o csv 2>/dev/null | tail -1 | awk -F'\",\"' "
         "'{print 1000 / $(NF-1)}'");
}
