/* foreign.c: recognising model files of other programs, by their first bytes and by their names. */
#include "model/foreign.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define GET_ORIGINAL                                                                                                   \
  "get config.json, model.safetensors, vocab.json and merges.txt of the Hugging Face model that it was made from"
#define SAVE_AGAIN "load it with transformers and write it with save_pretrained(DIR, safe_serialization=True)"
#define SAVE_FROM(framework)                                                                                           \
  "load it with transformers (from_pretrained(DIR, " framework                                                         \
  "=True)) and write it with save_pretrained(DIR, safe_serialization=True)"

const char *kvs_foreign_content(const unsigned char *bytes, size_t size, const char **remedy) {
  static const struct {
    const char *start;
    size_t length;
    const char *what, *remedy;
  } kinds[] = {
      {"GGUF", 4, "a GGUF file", GET_ORIGINAL},
      {"PK\3\4", 4, "a PyTorch checkpoint or another zip archive", SAVE_AGAIN},
      {"\x80\2", 2, "a Python pickle, as old PyTorch checkpoints are", SAVE_AGAIN},
      {"\x89HDF", 4, "an HDF5 file, as TensorFlow weights are", SAVE_FROM("from_tf")},
      {"version https://git-lfs", 23, "a Git LFS pointer, not the file itself", "fetch it with git lfs pull"},
      {"<!DOCTYP", 8, "a web page, not the file itself", "download the file again, by its own address"},
      {"<!doctyp", 8, "a web page, not the file itself", "download the file again, by its own address"},
      {"<html", 5, "a web page, not the file itself", "download the file again, by its own address"},
  };
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (size >= kinds[i].length && memcmp(bytes, kinds[i].start, kinds[i].length) == 0) {
      /* A pickle's two bytes also begin a safetensors file whose header has 640 bytes more than a multiple of 65,536; that one
       * goes on with the rest of a small number, and with the header's brace. */
      if (kinds[i].length == 2 && size >= 9 && memcmp(bytes + 4, "\0\0\0\0{", 5) == 0) continue;
      *remedy = kinds[i].remedy;
      return kinds[i].what;
    }
  return NULL;
}

/* Kinds of weights by the end of their name; where a directory has several, the earliest here is named. */
static const struct kind {
  const char *end, *what, *remedy;
} kinds[] = {
    {"pytorch_model.bin", "a PyTorch checkpoint", SAVE_AGAIN},
    {"pytorch_model.bin.index.json", "a sharded PyTorch checkpoint", SAVE_AGAIN},
    {"tf_model.h5", "TensorFlow weights", SAVE_FROM("from_tf")},
    {"flax_model.msgpack", "Flax weights", SAVE_FROM("from_flax")},
    {".ckpt.index", "the original TensorFlow checkpoint", GET_ORIGINAL},
    {".gguf", "a GGUF file", GET_ORIGINAL},
    {"adapter_model.safetensors", "an adapter, which is no model by itself",
     "merge it into its base model (merge_and_unload) and save that"},
    {".safetensors", "weights under another name", "if they are the whole model, rename them to model.safetensors"},
    {".pth", "a PyTorch checkpoint", SAVE_AGAIN},
    {".pt", "a PyTorch checkpoint", SAVE_AGAIN},
    {".onnx", "an ONNX graph", GET_ORIGINAL},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static size_t kind_of(const char *name) {
  size_t length = strlen(name), i = 0;
  for (; i < KINDS; i++) {
    size_t tail = strlen(kinds[i].end);
    if (length >= tail && strcmp(name + length - tail, kinds[i].end) == 0) break;
  }
  return i;
}

kvs_status kvs_foreign_refuse(const char *directory, const char *missing, kvs_error *err) {
  DIR *listing = opendir(directory);
  if (!listing) return KVS_OK; /* whoever maps a file in it says why it cannot be read */
  size_t best = KINDS;
  char example[256] = "";
  for (const struct dirent *entry; (entry = readdir(listing));) {
    size_t kind = kind_of(entry->d_name);
    /* A listing has no order: among files of one kind the first by name is shown, so that the message is always the same. */
    if (kind > best || kind == KINDS || (kind == best && strcmp(entry->d_name, example) > 0)) continue;
    best = kind;
    snprintf(example, sizeof example, "%s", entry->d_name);
  }
  closedir(listing);
  if (best == KINDS) return KVS_OK;
  return kvs_fail(err, KVS_ERR_INPUT, "%s: holds %s (%s) and no %s: %s", directory, kinds[best].what, example, missing,
                  kinds[best].remedy);
}
