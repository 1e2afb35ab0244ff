/* loading.c: how long it takes until something can be decoded: a model of GPT-2 small's size, its vocabulary, and the program
 * from exec to its first token and to ten tokens with a trace. */
#include "tests/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/share.h"
#include "kvstep/tokenizer.h"
#include "model/weights.h"
#include "tests/support/memory_model.h"
#include "tests/support/scratch.h"

enum { ROUNDS = 15 };

/* ---- a model's directory ---------------------------------------------------------------------------------------------- */

static FILE *create(const char *name) {
  FILE *file = fopen(in_folder(name), "w");
  if (!file) abort();
  return file;
}

typedef struct tensors {
  char *header; /* NULL: count alone */
  size_t length, bytes;
  FILE *data;
} tensors;

static void put(tensors *t, const char *name, const void *data, int rows, int cols) {
  size_t bytes = (size_t)(rows ? rows : 1) * (size_t)cols * 4;
  char shape[32];
  if (rows)
    snprintf(shape, sizeof shape, "[%d,%d]", rows, cols);
  else
    snprintf(shape, sizeof shape, "[%d]", cols);
  t->length +=
      (size_t)sprintf(t->header + t->length, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                      t->length > 1 ? "," : "", name, shape, t->bytes, t->bytes + bytes);
  t->bytes += bytes;
  if (t->data && fwrite(data, 1, bytes, t->data) != bytes) abort();
}

static void put_norm(tensors *t, const char *name, const kvs_norm *norm, int n) {
  char full[64];
  snprintf(full, sizeof full, "%s.weight", name), put(t, full, norm->g, 0, n);
  snprintf(full, sizeof full, "%s.bias", name), put(t, full, norm->b, 0, n);
}

static void put_linear(tensors *t, int layer, const char *name, const kvs_linear *l) {
  char full[64];
  snprintf(full, sizeof full, "h.%d.%s.weight", layer, name), put(t, full, l->w.data, l->w.rows, l->w.cols);
  snprintf(full, sizeof full, "h.%d.%s.bias", layer, name), put(t, full, l->b, 0, l->w.cols);
}

static void put_all(tensors *t, const kvs_model *model) {
  const kvs_config *c = &model->config;
  t->header[0] = '{', t->length = 1, t->bytes = 0;
  put(t, "wte.weight", model->wte.data, c->n_vocab, c->n_embd);
  put(t, "wpe.weight", model->wpe.data, c->n_ctx, c->n_embd);
  for (int l = 0; l < c->n_layer; l++) {
    const kvs_layer *layer = &model->layer[l];
    char name[32];
    snprintf(name, sizeof name, "h.%d.ln_1", l), put_norm(t, name, &layer->ln_1, c->n_embd);
    snprintf(name, sizeof name, "h.%d.ln_2", l), put_norm(t, name, &layer->ln_2, c->n_embd);
    put_linear(t, l, "attn.c_attn", &layer->c_attn), put_linear(t, l, "attn.c_proj", &layer->c_proj);
    put_linear(t, l, "mlp.c_fc", &layer->mlp_c_fc), put_linear(t, l, "mlp.c_proj", &layer->mlp_c_proj);
  }
  put_norm(t, "ln_f", &model->ln_f, c->n_embd);
  t->header[t->length++] = '}';
  while (t->length % 8) t->header[t->length++] = ' ';
}

static void write_model(const kvs_model *model) {
  const kvs_config *c = &model->config;
  FILE *config = create("config.json"), *file = create("model.safetensors");
  fprintf(config,
          "{\"model_type\":\"gpt2\",\"n_layer\":%d,\"n_head\":%d,\"n_embd\":%d,\"n_positions\":%d,\"vocab_size\":%d,"
          "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-5}",
          c->n_layer, c->n_head, c->n_embd, c->n_ctx, c->n_vocab);
  fclose(config);
  static char header[1 << 16];
  tensors t = {.header = header};
  put_all(&t, model); /* to know how long the header is */
  uint64_t length = t.length;
  if (fwrite(&length, 8, 1, file) != 1 || fwrite(header, 1, t.length, file) != t.length) abort();
  t.data = file;
  put_all(&t, model);
  fclose(file);
}

/* 256 bytes, 50,000 merges and a last word: as many as GPT-2 has. Word i > 255 is word i / 7 and one byte more, so that each is made
 * of two that are there before it. */
static void write_vocabulary(int words) {
  FILE *vocab = create("vocab.json"), *merges = create("merges.txt");
  static char text[60000][24];
  int count = 0;
  for (int byte = 0; byte < 256;
       byte++) { /* GPT-2's letters for the bytes: its own where printable, else from U+0100 on */
    bool shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    int code = shown ? byte : 256 + count;
    count += !shown;
    if (code < 128)
      snprintf(text[byte], sizeof text[byte], "%c", code);
    else
      snprintf(text[byte], sizeof text[byte], "%c%c", 0xC0 | code >> 6, 0x80 | (code & 63));
  }
  fprintf(merges, "#version: 0.2\n");
  for (int i = 256; i < words - 1; i++) {
    const char *left = text[(i - 256) / 26 < 26 ? 'a' + (i - 256) / 26 : 256 + ((i - 256) / 26 - 26)];
    const char *right = text['a' + (i - 256) % 26];
    snprintf(text[i], sizeof text[i], "%.20s%s", left, right);
    fprintf(merges, "%s %s\n", left, right);
  }
  snprintf(text[words - 1], sizeof text[words - 1], "<|endoftext|>");
  fputc('{', vocab);
  for (int i = 0; i < words; i++)
    fprintf(vocab, "%s\"%s%s\": %d", i ? ", " : "", text[i][0] == '"' || text[i][0] == '\\' ? "\\" : "", text[i], i);
  fputc('}', vocab);
  fclose(vocab), fclose(merges);
}

/* ---- measuring ------------------------------------------------------------------------------------------------------- */

static void add(const char *what, const double *seconds, double at_most) {
  bench_result result = bench_alone("loading", seconds, ROUNDS, 1e3, "ms");
  snprintf(result.what, sizeof result.what, "%s", what);
  snprintf(result.bound, sizeof result.bound, "at most %g ms", at_most);
  bench_add(&result);
}

static void measure_opening(void) {
  kvs_error err;
  double model_seconds[ROUNDS], words_seconds[ROUNDS];
  for (int r = -1; r < ROUNDS; r++) {
    kvs_model *model;
    kvs_tokenizer *tokenizer;
    double start = kvs_now();
    bench_must(kvs_model_open(folder, &model, &err), &err);
    double middle = kvs_now();
    bench_must(kvs_tokenizer_open(folder, &tokenizer, &err), &err);
    double end = kvs_now();
    if (r >= 0) model_seconds[r] = middle - start, words_seconds[r] = end - middle;
    kvs_tokenizer_free(tokenizer);
    kvs_model_free(model);
  }
  add("124M F32 safetensors, warm", model_seconds, 10);
  add("a vocabulary of 50,257", words_seconds, 30);
}

char *bench_program(void) {
  static char here[] = "./kvstep";
  char *program = getenv("KVSTEP");
  return program ? program : here;
}

double bench_run(char *const *arguments, bool to_first_byte) {
  int ends[2];
  char byte;
  if (pipe(ends) != 0) abort();
  double start = kvs_now(), first = 0;
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]), close(ends[1]);
    if (!freopen("/dev/null", "w", stderr)) _exit(126);
    execv(arguments[0], arguments);
    _exit(127);
  }
  close(ends[1]);
  while (read(ends[0], &byte, 1) == 1)
    if (first == 0) first = kvs_now() - start;
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0 || first == 0) {
    bench_say("bench: %s did not work; run the bench where it lies (make bench)", arguments[0]);
    exit(1);
  }
  return to_first_byte ? first : kvs_now() - start;
}

static void measure_program(void) {
  char trace[128];
  strcpy(trace, in_folder("run.db"));
  char *program = bench_program();
  char *first[] = {program, "run", "-p", "It is a truth", "-n", "1", NULL};
  char *ten[] = {program, "run", "-p", "It is a truth", "-n", "10", "-o", trace, "--force", NULL};
  char *info[] = {program, "info", trace, NULL};
  double seconds[3][ROUNDS];
  for (int r = -1; r < ROUNDS; r++) {
    double a = bench_run(first, true), b = bench_run(ten, false), c = bench_run(info, false);
    if (r >= 0) seconds[0][r] = a, seconds[1][r] = b, seconds[2][r] = c;
  }
  add("kvstep run, exec to the first token", seconds[0], 15);
  add("kvstep run, ten tokens and a trace", seconds[1], 40);
  add("kvstep info on that trace", seconds[2], 30);
}

void bench_loading(void) {
  if (make_folder(NULL)) abort();
  kvs_model *model = bench_model_124m(KVS_F32);
  write_model(model);
  write_vocabulary(model->config.n_vocab);
  memory_model_free(model);
  measure_opening();
  measure_program();
  if (remove_folder(NULL)) bench_say("bench: %s stays behind", folder);
}
