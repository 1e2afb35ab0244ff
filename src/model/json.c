/* json.c: JSON files through jansson. */
#include "model/json.h"

bool kvs_json_starved(const json_error_t *error) {
  return json_error_code(error) == json_error_out_of_memory || error->text[0] == '\0';
}

kvs_status kvs_json_read(const kvs_file *file, json_t **out, kvs_error *err) {
  json_error_t error = {0};
  *out = NULL;
  if (file->size == 0)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s, line 1: not valid JSON: the file is empty: copy it again from where the model came from",
                    file->path);
  *out = json_loadb((const char *)file->bytes, file->size, JSON_REJECT_DUPLICATES, &error);
  if (!*out && kvs_json_starved(&error)) return kvs_fail_memory(err, "reading JSON");
  if (!*out)
    return kvs_fail(err, KVS_ERR_INPUT,
                    "%s, line %d, column %d: not valid JSON: %s: copy the file again from where the model came from",
                    file->path, error.line, error.column, error.text);
  if (json_is_object(*out)) return KVS_OK;
  json_decref(*out);
  *out = NULL;
  return kvs_fail(
      err, KVS_ERR_INPUT,
      "%s: the file holds a JSON array where an object is expected: copy the file again from where the model "
      "came from",
      file->path);
}
