/* A host that loads the library at run time may unload it again: no threads, descriptors, handlers
 * or static state stay behind. Each round opens two runtimes, a model and a store, says something
 * to a session, reads a part of the answer, and destroys the handles in an order of its own, the
 * running turn among them. dlopen_test LIBRARY CHECKPOINT EMPTY_FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <cairn/cairn.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { kRounds = 100, kHandles = 6 };

#define FUNCTIONS(F)                                                                             \
  F(const char*, cairn_version, (void))                                                          \
  F(cairn_code, cairn_runtime_create,                                                            \
    (const cairn_runtime_options*, cairn_runtime**, cairn_error**))                              \
  F(cairn_code, cairn_model_open,                                                                \
    (const cairn_runtime*, const char*, size_t, const cairn_model_options*, cairn_model**,       \
     cairn_error**))                                                                             \
  F(cairn_code, cairn_store_open,                                                                \
    (const cairn_runtime*, const char*, size_t, const cairn_store_options*, cairn_store**,       \
     cairn_error**))                                                                             \
  F(cairn_code, cairn_session_open_or_create,                                                    \
    (const cairn_model*, const cairn_store*, const char*, size_t, const cairn_session_options*,  \
     cairn_session**, cairn_error**))                                                            \
  F(cairn_code, cairn_session_append_user, (cairn_session*, const char*, size_t, cairn_error**)) \
  F(cairn_code, cairn_session_start_turn,                                                        \
    (cairn_session*, const cairn_turn_options*, cairn_turn**, cairn_error**))                    \
  F(cairn_code, cairn_turn_next, (cairn_turn*, int64_t, cairn_event**, cairn_error**))           \
  F(int32_t, cairn_event_kind, (const cairn_event*))                                             \
  F(void, cairn_event_destroy, (cairn_event**))                                                  \
  F(void, cairn_turn_destroy, (cairn_turn**))                                                    \
  F(void, cairn_session_destroy, (cairn_session**))                                              \
  F(void, cairn_store_destroy, (cairn_store**))                                                  \
  F(void, cairn_model_destroy, (cairn_model**))                                                  \
  F(void, cairn_runtime_destroy, (cairn_runtime**))

#define POINTER(result, name, parameters) result(*name) parameters;
typedef struct api {
  FUNCTIONS(POINTER)
} api;

/* ISO C has no cast from an object to a function pointer; the bytes are the same. */
static int find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  if (symbol == NULL) fprintf(stderr, "%s is missing\n", name);
  return symbol != NULL;
}

static int find_all(void* library, api* a) {
  int found = 1;
#define FIND(result, name, parameters) found = found && find(library, #name, &a->name);
  FUNCTIONS(FIND)
  return found;
}

typedef struct handles {
  cairn_runtime* runtime;
  cairn_runtime* other;
  cairn_model* model;
  cairn_store* store;
  cairn_session* session;
  cairn_turn* turn;
} handles;

static unsigned next_number(unsigned* seed) {
  return (*seed = *seed * 1664525U + 1013904223U) >> 16;
}

static void destroy(const api* a, handles* h, int which) {
  if (which == 0) a->cairn_runtime_destroy(&h->runtime);
  if (which == 1) a->cairn_runtime_destroy(&h->other);
  if (which == 2) a->cairn_model_destroy(&h->model);
  if (which == 3) a->cairn_store_destroy(&h->store);
  if (which == 4) a->cairn_session_destroy(&h->session);
  if (which == 5) a->cairn_turn_destroy(&h->turn);
}

static void destroy_in_any_order(const api* a, handles* h, unsigned* seed) {
  int order[kHandles] = {0, 1, 2, 3, 4, 5};
  for (int i = kHandles - 1; i > 0; --i) {
    const int j = (int)(next_number(seed) % (unsigned)(i + 1));
    const int swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
  for (int i = 0; i < kHandles; ++i) destroy(a, h, order[i]);
}

static int open_all(const api* a, handles* h, const char* checkpoint, const char* folder) {
  char path[4096];
  cairn_runtime_options options = CAIRN_RUNTIME_OPTIONS_INIT;
  options.compute_threads = 2;
  snprintf(path, sizeof path, "%s/store", folder);
  return strcmp(a->cairn_version(), "") != 0 &&
         a->cairn_runtime_create(&options, &h->runtime, NULL) == CAIRN_OK &&
         a->cairn_runtime_create(NULL, &h->other, NULL) == CAIRN_OK &&
         a->cairn_model_open(h->runtime, checkpoint, CAIRN_CSTRING, NULL, &h->model, NULL) ==
             CAIRN_OK &&
         a->cairn_store_open(h->other, path, CAIRN_CSTRING, NULL, &h->store, NULL) == CAIRN_OK;
}

/* Says something in a session of its own and reads some events of the answer. */
static int talk(const api* a, handles* h, int round) {
  cairn_turn_options options = CAIRN_TURN_OPTIONS_INIT;
  cairn_event* event = NULL;
  char name[32];
  options.max_tokens = 2 + round % 7;
  snprintf(name, sizeof name, "round %d", round);
  if (a->cairn_session_open_or_create(h->model, h->store, name, CAIRN_CSTRING, NULL, &h->session,
                                      NULL) != CAIRN_OK ||
      a->cairn_session_append_user(h->session, "Hi", 2, NULL) != CAIRN_OK ||
      a->cairn_session_start_turn(h->session, &options, &h->turn, NULL) != CAIRN_OK) {
    return 0;
  }
  for (int n = round % 3 == 0 ? 1000 : round % 5; n > 0; --n) {
    if (a->cairn_turn_next(h->turn, -1, &event, NULL) != CAIRN_OK) break;
    a->cairn_event_destroy(&event);
  }
  return 1;
}

static int count_entries(const char* folder) {
  int count = 0;
  DIR* entries = opendir(folder);
  if (entries == NULL) return -1;
  while (readdir(entries) != NULL) ++count;
  closedir(entries);
  return count;
}

static int is_loaded(const char* library) {
  void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (loaded != NULL) dlclose(loaded);
  return loaded != NULL;
}

static int use_once(const char* path, const char* checkpoint, const char* folder, int round,
                    unsigned* seed) {
  api a;
  handles h = {NULL, NULL, NULL, NULL, NULL, NULL};
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 0;
  const int ok =
      find_all(library, &a) && open_all(&a, &h, checkpoint, folder) && talk(&a, &h, round);
  destroy_in_any_order(&a, &h, seed);
  return ok && dlclose(library) == 0;
}

int main(int argc, char** argv) {
  unsigned seed = 20260731U;
  int n_threads = 0, n_files = 0;
  if (argc != 4) return fprintf(stderr, "usage: dlopen_test LIBRARY CHECKPOINT FOLDER\n"), 2;
  for (int i = 0; i < kRounds; ++i) {
    if (!use_once(argv[1], argv[2], argv[3], i, &seed)) {
      return fprintf(stderr, "round %d failed\n", i), 1;
    }
    const int threads = count_entries("/proc/self/task"), files = count_entries("/proc/self/fd");
    if (i == 0) {
      n_threads = threads; /* what the first round leaves is of libraries that stay */
      n_files = files;
    }
    if (threads != n_threads || files != n_files) {
      fprintf(stderr, "round %d: %d threads, %d files instead of %d and %d\n", i, threads, files,
              n_threads, n_files);
      return 1;
    }
  }
  printf("%d rounds; %d threads of libraries below it stay\n", kRounds, n_threads - 3);
  if (is_loaded(argv[1])) return fprintf(stderr, "the library stays loaded\n"), 1;
  return 0;
}
