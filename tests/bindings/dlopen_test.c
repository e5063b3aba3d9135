/* A host that loads the library at run time may unload it again: no threads, handlers or static
 * state stay behind. dlopen_test LIBRARY CHECKPOINT */
#include <cairn/cairn.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef const char* version_fn(void);
typedef cairn_code create_fn(const cairn_runtime_options*, cairn_runtime**, cairn_error**);
typedef cairn_code open_fn(const cairn_runtime*, const char*, size_t, const cairn_model_options*,
                           cairn_model**, cairn_error**);
typedef void destroy_runtime_fn(cairn_runtime**);
typedef void destroy_model_fn(cairn_model**);

/* ISO C has no cast from an object to a function pointer; the bytes are the same. */
static int find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static int use_once(const char* path, const char* checkpoint) {
  version_fn* version = NULL;
  create_fn* create = NULL;
  open_fn* open = NULL;
  destroy_runtime_fn* destroy_runtime = NULL;
  destroy_model_fn* destroy_model = NULL;
  cairn_runtime* runtime = NULL;
  cairn_runtime* other = NULL;
  cairn_model* model = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 0;
  int ok = find(library, "cairn_version", &version) &&
           find(library, "cairn_runtime_create", &create) &&
           find(library, "cairn_model_open", &open) &&
           find(library, "cairn_runtime_destroy", &destroy_runtime) &&
           find(library, "cairn_model_destroy", &destroy_model);
  ok = ok && strcmp(version(), "") != 0;
  ok = ok && create(NULL, &runtime, NULL) == CAIRN_OK && create(NULL, &other, NULL) == CAIRN_OK;
  ok = ok && open(runtime, checkpoint, CAIRN_CSTRING, NULL, &model, NULL) == CAIRN_OK;
  if (ok) {
    destroy_runtime(&runtime);
    destroy_model(&model);
    destroy_runtime(&other);
  }
  return ok && dlclose(library) == 0;
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: dlopen_test LIBRARY CHECKPOINT\n"), 2;
  for (int i = 0; i < 100; ++i) {
    if (!use_once(argv[1], argv[2])) return fprintf(stderr, "round %d failed\n", i), 1;
  }
  return 0;
}
