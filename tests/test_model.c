/* test_model.c: what can be given as a model: directories, built-in names, and everything else, refused by what it is. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/dir.h"
#include "model/weights.h"
#include "tests/support/model_files.h"
#include "tests/support/scratch.h"

static void check_refused(const char *name, kvs_status expected, const char *words) {
  kvs_error err = {0};
  kvs_model *model = (kvs_model *)&err; /* must be overwritten */
  kvs_status status = kvs_model_open(name, &model, &err);
  if (status == KVS_OK) fail_msg("%s was accepted; expected \"%s\"", name, words);
  assert_null(model);
  assert_int_equal(err.status, status);
  if (missing_word(err.message, words)) fail_msg("\"%s\" is not in: %s", missing_word(err.message, words), err.message);
  if (!is_clean_line(err.message)) fail_msg("not one clean line: %s", err.message);
  assert_int_equal(status, expected);
  assert_int_equal(kvs_model_open(name, &model, NULL), expected);
  assert_null(model);
}

static kvs_model *opened(const char *name) {
  kvs_error err = {0};
  kvs_model *model;
  if (kvs_model_open(name, &model, &err)) fail_msg("%s was refused: %s", name, err.message);
  assert_non_null(model);
  return model;
}

static int start(void **state) {
  static model_files files;
  model_files_start(&files);
  model_files_write(&files);
  *state = &files;
  return 0;
}

static int end(void **state) {
  model_files_remove(*state);
  return 0;
}

/* ---- directories ------------------------------------------------------------------------------------------------------ */

static void a_directory_opens(void **state) {
  model_files *m = *state;
  kvs_model *model = opened(m->dir);
  const kvs_config *c = kvs_model_config(model);
  assert_int_equal(c->n_layer, TINY_LAYERS);
  assert_int_equal(c->n_ctx, TINY_CTX);
  assert_int_equal(c->n_vocab, TINY_VOCAB);
  assert_int_equal(c->eos_token, 4);
  assert_true(c->tied);
  assert_string_equal(kvs_model_name(model), strrchr(m->dir, '/') + 1);
  assert_int_equal(kvs_model_dtype(model), KVS_F32);
  /* wte, wpe, ln_f, and 12·n² + 13·n in each layer */
  assert_int_equal(kvs_model_parameters(model), 5 * 4 + 6 * 4 + 2 * 4 + 2 * (12 * 16 + 13 * 4));
  assert_null(kvs_model_warning(model, 0));
  assert_null(kvs_model_warning(model, -1));
  kvs_model_free(model);
  assert_int_equal(kvs_model_open(m->dir, &model, NULL), KVS_OK);
  kvs_model_free(model);
  kvs_model_free(NULL);
}

static void slashes_at_the_end_are_no_part_of_the_name(void **state) {
  model_files *m = *state;
  kvs_model *model = opened(model_files_path(m, "//"));
  assert_string_equal(kvs_model_name(model), strrchr(m->dir, '/') + 1);
  kvs_model_free(model);
}

static void a_name_without_a_slash_may_be_a_directory(void **state) {
  model_files *m = *state;
  char before[4096];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(m->dir), 0);
  assert_int_equal(mkdir("austen", 0700), 0);
  check_refused("austen", KVS_ERR_INPUT, "austen: there is no config.json"); /* it wins over the built-in model */
  assert_int_equal(rmdir("austen"), 0);
  model_files_text(m, "reverse", "a file of that name is no directory");
  kvs_model *model = opened("reverse");
  assert_int_equal(kvs_model_config(model)->n_vocab, 28);
  kvs_model_free(model);
  model = opened(".");
  assert_int_equal(kvs_model_config(model)->n_vocab, TINY_VOCAB);
  kvs_model_free(model);
  assert_int_equal(chdir(before), 0);
}

static void the_configs_notes_become_warnings(void **state) {
  model_files *m = *state;
  model_files_config(m, "n_ctx", "3");
  kvs_model *model = opened(m->dir);
  assert_non_null(kvs_model_warning(model, 0));
  assert_null(missing_word(kvs_model_warning(model, 0), "config.json|n_positions is 6|n_ctx is 3|n_positions counts"));
  assert_int_equal(kvs_model_config(model)->n_ctx, 6);
  kvs_model_free(model);
  model_files_config(m, "eos_token_id", "5");
  model = opened(m->dir);
  assert_non_null(kvs_model_warning(model, 0));
  assert_null(
      missing_word(kvs_model_warning(model, 0), "config.json|eos_token_id 5|vocabulary of 5 tokens|no token ends"));
  assert_int_equal(kvs_model_config(model)->eos_token, -1);
  kvs_model_free(model);
}

static void files_that_are_missing(void **state) {
  model_files *m = *state;
  model_files_unlink(m, "model.safetensors");
  check_refused(m->dir, KVS_ERR_INPUT,
                "there is no model.safetensors|model.safetensors.index.json|put the model's weights");
  model_files_unlink(m, "config.json");
  check_refused(m->dir, KVS_ERR_INPUT, "there is no config.json|model.safetensors, vocab.json and merges.txt");
  assert_non_null(strstr(m->dir, "kvstep-model"));
}

static void other_frameworks_weights_are_named(void **state) {
  model_files *m = *state;
  model_files_unlink(m, "model.safetensors");
  static const char convert[] = "save_pretrained(DIR, safe_serialization=True)";
  const char *files[][3] = {
      {"pytorch_model.bin", "a PyTorch checkpoint", convert},
      {"pytorch_model.bin.index.json", "a sharded PyTorch checkpoint", convert},
      {"tf_model.h5", "TensorFlow weights", convert},
      {"flax_model.msgpack", "Flax weights", convert},
      {"model.ckpt.index", "the original TensorFlow checkpoint", "of the Hugging Face model that it was made from"}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char words[200];
    snprintf(words, sizeof words, "%s|%s|no model.safetensors|%s", files[i][0], files[i][1], files[i][2]);
    model_files_text(m, files[i][0], "PK\3\4");
    check_refused(m->dir, KVS_ERR_INPUT, words);
    model_files_unlink(m, files[i][0]);
  }
}

static void empty_files(void **state) {
  model_files *m = *state;
  model_files_text(m, "model.safetensors", "");
  check_refused(m->dir, KVS_ERR_INPUT, "model.safetensors: 0 bytes, too short for a safetensors file|copy it again");
  model_files_text(m, "config.json", "");
  check_refused(m->dir, KVS_ERR_INPUT, "config.json, line 1: not valid JSON: the file is empty|copy it again");
}

static void cut_short(void **state) {
  model_files *m = *state;
  struct stat status;
  assert_int_equal(stat(model_files_path(m, "model.safetensors"), &status), 0);
  assert_int_equal(truncate(model_files_path(m, "model.safetensors"), status.st_size - 1), 0);
  check_refused(m->dir, KVS_ERR_INPUT, "model.safetensors: tensor ln_f.bias|end at byte|cut short|copy it again");
}

static void a_git_lfs_pointer(void **state) {
  model_files *m = *state;
  model_files_text(m, "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n");
  check_refused(m->dir, KVS_ERR_INPUT, "model.safetensors: a Git LFS pointer|git lfs pull");
}

/* Neither waits for somebody to write into the pipe. */
static void pipes_and_directories_in_a_files_place(void **state) {
  model_files *m = *state;
  model_files_unlink(m, "model.safetensors");
  assert_int_equal(mkfifo(model_files_path(m, "model.safetensors"), 0600), 0);
  check_refused(m->dir, KVS_ERR_INPUT, "model.safetensors: not a regular file|put the model's file in its place");
  check_refused(model_files_path(m, "model.safetensors"), KVS_ERR_INPUT,
                "model.safetensors: neither a directory nor a regular file|give a Hugging Face directory");
  model_files_unlink(m, "config.json");
  assert_int_equal(mkdir(model_files_path(m, "config.json"), 0700), 0);
  check_refused(m->dir, KVS_ERR_INPUT, "config.json: not a regular file");
}

/* A download cache is made of links; one that leads nowhere is said to be unreadable, not absent. */
static void links_that_lead_nowhere(void **state) {
  model_files *m = *state;
  model_files_unlink(m, "model.safetensors");
  assert_int_equal(symlink("blobs/gone", model_files_path(m, "model.safetensors")), 0);
  check_refused(m->dir, KVS_ERR_IO, "model.safetensors: cannot be read: No such file");
  model_files_unlink(m, "config.json");
  assert_int_equal(symlink("config.json", model_files_path(m, "config.json")), 0);
  check_refused(m->dir, KVS_ERR_IO, "config.json: cannot be read: ");
}

/* The superuser may read everything, so it becomes nobody for a moment. */
static void files_nobody_may_read(void **state) {
  model_files *m = *state;
  const uid_t nobody = 65534, self = geteuid();
  assert_int_equal(chmod(m->dir, 0711), 0);
  assert_int_equal(chmod(model_files_path(m, "config.json"), 0644), 0);
  assert_int_equal(chmod(model_files_path(m, "model.safetensors"), 0), 0);
  if (self == 0) assert_int_equal(seteuid(nobody), 0);
  check_refused(m->dir, KVS_ERR_IO, "model.safetensors: cannot be read: Permission denied");
  assert_int_equal(seteuid(self), 0);
  assert_int_equal(chmod(m->dir, 0600), 0);
  if (self == 0) assert_int_equal(seteuid(nobody), 0);
  check_refused(m->dir, KVS_ERR_IO, "config.json: cannot be read: Permission denied");
  assert_int_equal(seteuid(self), 0);
  assert_int_equal(chmod(m->dir, 0700), 0);
}

static int json_allocations_left;

static void *scarce(size_t size) { return json_allocations_left-- > 0 ? malloc(size) : NULL; }

/* jansson has its allocations refused from the n-th on, for each n until it needs no more. */
static void too_little_memory_for_json(void **state) {
  model_files *m = *state;
  kvs_status status = KVS_ERR_MEMORY;
  for (int n = 0; status != KVS_OK; n++) {
    kvs_error err = {0};
    kvs_model *model;
    json_allocations_left = n;
    json_set_alloc_funcs(scarce, free);
    status = kvs_model_open(m->dir, &model, &err);
    json_set_alloc_funcs(malloc, free);
    if (n == 0) assert_int_equal(status, KVS_ERR_MEMORY);
    if (n == 0) assert_string_equal(err.message, "out of memory while reading JSON");
    assert_true((status == KVS_OK) == (model != NULL));
    kvs_model_free(model);
    assert_in_range(n, 0, 5000);
  }
}

/* ---- what is no directory ------------------------------------------------------------------------------------------------ */

static void no_such_model(void **state) {
  (void)state;
  check_refused("no-such-model", KVS_ERR_IO, "no-such-model: no such model directory|built in: austen, reverse");
  check_refused("/no/such/model", KVS_ERR_IO, "/no/such/model: no such model directory|austen, reverse");
  check_refused("./austen", KVS_ERR_IO, "./austen: no such model directory"); /* a path, not the built-in model */
  check_refused("", KVS_ERR_IO, "\"\": no such model directory|austen, reverse");
  check_refused("a\nb\033[2J", KVS_ERR_IO, "a?b?[2J: no such model");
}

static void a_path_through_a_file_or_too_long(void **state) {
  model_files *m = *state;
  check_refused(model_files_path(m, "config.json/model"), KVS_ERR_IO,
                "config.json/model: cannot be opened: Not a directory");
  char name[300];
  memset(name, 'n', sizeof name);
  name[sizeof name - 1] = '\0';
  check_refused(name, KVS_ERR_IO, "cannot be opened: File name too long");
}

static void a_file_is_called_what_it_is(void **state) {
  model_files *m = *state;
  const struct {
    const char *file, *text, *words;
  } given[] = {
      {"gpt2.gguf", "GGUF\3",
       "gpt2.gguf: a GGUF file|Hugging Face|config.json, model.safetensors, vocab.json and merges.txt"},
      {"weights", "GGUF", "weights: a GGUF file"},
      {"model.bin", "PK\3\4", "model.bin: a PyTorch checkpoint|save_pretrained(DIR, safe_serialization=True)|give DIR"},
      {"model.pt", "", "model.pt: a PyTorch checkpoint|safe_serialization"},
      {"zipped", "PK\3\4", "zipped: a PyTorch checkpoint"},
      {"model.safetensors", "", "model.safetensors: one file of a model|give the directory"},
      {"config.json", "", "config.json: one file of a model|give the directory"},
      {"notes.txt", "hello", "notes.txt: a file, not a model|Hugging Face directory or a built-in model's name"},
      {"empty", "", "empty: a file, not a model"}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
    model_files_text(m, given[i].file, given[i].text);
    check_refused(model_files_path(m, given[i].file), KVS_ERR_INPUT, given[i].words);
  }
  model_files_config(m, NULL, NULL);
}

/* ---- built in -------------------------------------------------------------------------------------------------------------- */

static void assert_shape(const kvs_tensor *t, int rows, int cols) {
  assert_non_null(t->data);
  assert_int_equal(t->rows, rows);
  assert_int_equal(t->cols, cols);
}

/* Slashes at the end are no part of a name, unless there is nothing else. */
static void slashes_at_the_end(void **state) {
  (void)state;
  static const char *const names[][2] = {
      {"/", "/"}, {"//", "/"}, {"/usr/", "usr"}, {"/usr//", "usr"}, {"tests//support///", "support"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    kvs_dir *dir;
    kvs_error err = {0};
    assert_int_equal(kvs_dir_open(names[i][0], &dir, &err), KVS_OK);
    assert_string_equal(kvs_dir_name(dir), names[i][1]);
    kvs_dir_close(dir);
  }
}

static void the_built_in_models_are_whole(void **state) {
  (void)state;
  int count = 0;
  for (const kvs_builtin *builtin; (builtin = kvs_builtin_at(count)); count++) {
    kvs_model *model = opened(builtin->name);
    const kvs_config *c = kvs_model_config(model);
    assert_string_equal(kvs_model_name(model), builtin->name);
    assert_true(strlen(builtin->summary) > 10 && strlen(builtin->prompt) > 0);
    assert_null(kvs_model_warning(model, 0));
    assert_shape(&model->wte, c->n_vocab, c->n_embd);
    assert_shape(&model->wpe, c->n_ctx, c->n_embd);
    assert_ptr_equal(model->lm_head.data, model->wte.data);
    for (int layer = 0; layer < c->n_layer; layer++) {
      assert_shape(&model->layer[layer].c_attn.w, c->n_embd, 3 * c->n_embd);
      assert_shape(&model->layer[layer].c_proj.w, c->n_embd, c->n_embd);
      assert_shape(&model->layer[layer].mlp_c_fc.w, c->n_embd, c->n_inner);
      assert_shape(&model->layer[layer].mlp_c_proj.w, c->n_inner, c->n_embd);
    }
    kvs_model_free(model);
  }
  assert_int_equal(count, 2);
  assert_null(kvs_builtin_at(-1));
  kvs_model *model = opened("austen");
  assert_int_equal(kvs_model_config(model)->n_layer, 4);
  assert_int_equal(kvs_model_config(model)->n_vocab, 1024);
  assert_int_equal(kvs_model_config(model)->n_ctx, 128);
  kvs_model_free(model);
}

/* What another program says of the bytes of some files, one after another. */
static void sha256sum_of(const char *files, char hex[65]) {
  assert_int_equal(shell_says(hex, 65, "cat %s | sha256sum", files), 0);
}

static void the_hash_is_sha256sums(void **state) {
  model_files *m = *state;
  char hex[65], path[200];
  const char *ours, *again;
  for (int i = 0; kvs_builtin_at(i); i++) {
    kvs_model *model = opened(kvs_builtin_at(i)->name);
    snprintf(path, sizeof path, "examples/models/%s/model.safetensors", kvs_builtin_at(i)->name);
    sha256sum_of(path, hex);
    assert_int_equal(kvs_model_sha256(model, &ours, NULL), KVS_OK);
    assert_string_equal(ours, hex);
    assert_int_equal(kvs_model_sha256(model, &again, NULL), KVS_OK);
    assert_ptr_equal(ours, again);
    kvs_model_free(model);
  }
  sha256sum_of(model_files_path(m, "model.safetensors"), hex);
  kvs_model *model = opened(m->dir);
  assert_int_equal(kvs_model_sha256(model, &ours, NULL), KVS_OK);
  assert_string_equal(ours, hex);
  kvs_model_free(model);
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      with_files(a_directory_opens),
      with_files(slashes_at_the_end_are_no_part_of_the_name),
      with_files(a_name_without_a_slash_may_be_a_directory),
      with_files(the_configs_notes_become_warnings),
      with_files(files_that_are_missing),
      with_files(other_frameworks_weights_are_named),
      with_files(empty_files),
      with_files(cut_short),
      with_files(a_git_lfs_pointer),
      with_files(pipes_and_directories_in_a_files_place),
      with_files(links_that_lead_nowhere),
      with_files(files_nobody_may_read),
      with_files(too_little_memory_for_json),
      cmocka_unit_test(no_such_model),
      with_files(a_path_through_a_file_or_too_long),
      with_files(a_file_is_called_what_it_is),
      cmocka_unit_test(slashes_at_the_end),
      cmocka_unit_test(the_built_in_models_are_whole),
      with_files(the_hash_is_sha256sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
