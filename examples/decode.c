/* decode.c: decodes a prompt with kvstep's library and writes every step to a trace.
 * After `make install`:
 *     cc decode.c $(pkg-config --cflags --libs kvstep) -o decode && ./decode austen 'It is a truth' my.db
 * or in the project's folder, after `make`:
 *     cc -Iinclude examples/decode.c build/libkvstep.a $(pkg-config --libs sqlite3 jansson libpcre2-8 libcrypto zlib) -lm -pthread -o decode
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvstep/kvstep.h>

enum { TOKENS = 16 };
static const kvs_sampling greedy = {.top_p = 1}; /* temperature 0: always the most probable token */

static kvs_status generate(kvs_engine *engine, const kvs_model *model, const kvs_tokenizer *tokenizer, kvs_error *err) {
  kvs_sampler *sampler = NULL;
  kvs_status status = kvs_sampler_create(&greedy, kvs_model_config(model)->n_vocab, &sampler, err);
  for (int i = 0; status == KVS_OK && i < TOKENS; i++) {
    int token = kvs_sampler_next(sampler, kvs_engine_logits(engine));
    status = kvs_engine_decode(engine, token, KVS_SAMPLED, err);
    size_t length;
    const unsigned char *bytes = kvs_tokenizer_bytes(tokenizer, token, &length);
    if (status == KVS_OK && bytes) fwrite(bytes, 1, length, stdout);
  }
  putchar('\n');
  kvs_sampler_free(sampler);
  return status == KVS_ERR_CONTEXT ? KVS_OK : status; /* a full context ends a text, it is no failure */
}

int main(int argc, char **argv) {
  if (argc != 4) return fprintf(stderr, "usage: decode MODEL PROMPT TRACE\n"), 2;
  kvs_error err;
  kvs_model *model = NULL;
  kvs_tokenizer *tokenizer = NULL;
  kvs_engine *engine = NULL;
  kvs_trace *trace = NULL;
  int *tokens = NULL;
  size_t count = 0;
  const kvs_run_info info = {
      .command = "decode", .sampling = greedy, .prompt = argv[2], .prompt_length = strlen(argv[2])};

  kvs_status status = kvs_model_open(argv[1], &model, &err);
  if (!status) status = kvs_tokenizer_open(argv[1], &tokenizer, &err);
  if (!status) status = kvs_tokenizer_encode(tokenizer, argv[2], strlen(argv[2]), false, &tokens, &count, &err);
  if (!status) status = kvs_engine_create(model, NULL, &engine, &err);
  if (!status) status = kvs_trace_create(argv[3], KVS_TRACE_NEW, &trace, &err);
  if (!status) status = kvs_trace_begin_run(trace, model, tokenizer, &info, NULL, NULL, &err);
  const kvs_observer observer = status ? (kvs_observer){0} : kvs_trace_observer(trace);
  if (!status) kvs_engine_observe(engine, &observer);
  if (!status) status = kvs_engine_prefill(engine, tokens, (int)count, KVS_PROMPT, &err);
  if (!status) fputs(argv[2], stdout);
  if (!status) status = generate(engine, model, tokenizer, &err);
  if (engine) kvs_engine_observe(engine, NULL); /* waits until it is done with the trace */
  if (!status) status = kvs_trace_end_run(trace, &err);
  const kvs_status closed = kvs_trace_close(trace, status ? NULL : &err); /* the first error is the one to tell */
  if (!status) status = closed;
  if (status) fprintf(stderr, "decode: %s\n", err.message);
  free(tokens);
  kvs_engine_free(engine);
  kvs_tokenizer_free(tokenizer);
  kvs_model_free(model);
  return status ? 1 : 0;
}
