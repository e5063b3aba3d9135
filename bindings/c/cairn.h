/** @file
 * Cairn: an embeddable engine for models of the DeepSeek-V4.1-Flash family with durable agent
 * sessions. This header is the manual of the C API; it is strict C99 and also C++.
 *
 * WHAT A PROGRAM DOES
 *
 * @verbatim
 *   cairn_runtime_create          threads and the log sink
 *   cairn_model_open              a checkpoint folder
 *   cairn_store_open              a directory that keeps sessions
 *   cairn_session_open_or_create  a conversation with a name
 *   cairn_session_append_user     what the user said, synced to disk when the call returns
 *   cairn_session_start_turn      the model answers
 *   cairn_turn_next               events, pulled one after the other until CAIRN_EVENT_TURN_END
 * @endverbatim
 *
 *   A process that dies at any instant is continued by opening the same session again. If
 *   cairn_session_get_info then says `turn_open`, cairn_session_resume_turn goes on with the answer
 *   where it stood. examples/hello.c and examples/tool_loop.c are complete programs.
 *
 * LIFETIMES
 *
 * @verbatim
 *   cairn_runtime <--- cairn_model <---.
 *         ^                            |--- cairn_session <--- cairn_turn
 *         '------------ cairn_store <--'
 * @endverbatim
 *
 *   An arrow reads "keeps alive": handles may be destroyed in any order and from any thread. A
 *   session stays open, and its store stays locked, until the last handle that keeps it alive is
 *   destroyed. Events, errors, lists and buffers stand alone: they outlive what made them.
 *
 * CONVENTIONS
 *
 *   Each function says who owns what it gives, which threads may call it, whether it blocks, its
 *   codes, and since which version there is one.
 *
 *   Handles. Opaque. Each kind has one destroy function; it takes the address of the handle,
 *     accepts NULL and a NULL handle, sets the handle to NULL, and cannot fail.
 *   Codes and errors. A function that can fail returns a cairn_code and takes `cairn_error** error`
 *     last. If `error` is not NULL, *error is set on every return: to NULL on success, to an error
 *     that the caller owns on failure. What it held before is not looked at. There is no "last
 *     error" anywhere else. If memory is too short for an error object, the code comes without one.
 *     Any such function may return CAIRN_INVALID_ARGUMENT (a NULL that is not allowed, text that is
 *     not UTF-8, a bad option), CAIRN_OUT_OF_MEMORY and CAIRN_INTERNAL; the codes listed with a
 *     function are the other ones. "Codes: none" means these three. New versions may add codes.
 *     BUSY and TIMEOUT pass by themselves; after OUT_OF_MEMORY, OUT_OF_DISK and IO_ERROR the same
 *     call may succeed when their cause is gone; after the others it does not help to repeat it.
 *
 * @code{.c}
 *     cairn_error* error = NULL;
 *     if (cairn_session_append_user(session, "Hello!", CAIRN_CSTRING, &error)) {
 *       fprintf(stderr, "%s: %s\n", cairn_error_name(error), cairn_error_message(error));
 *       cairn_error_destroy(&error);
 *     }
 * @endcode
 *
 *   Out parameters are written on every return; on failure a handle is NULL. They must not be NULL
 *     unless the function says so.
 *   After a failure every object involved is as it was before the call and stays usable, unless the
 *     function says otherwise.
 *   Option structs begin with `struct_size`, are passed by pointer, and are read only during the
 *     call. NULL, and zero in any field, mean the default. Initialise them with CAIRN_..._INIT,
 *     with cairn_..._options_init, or as zero bytes with struct_size set. They grow at the end
 *     only. A caller newer than the library gets CAIRN_UNSUPPORTED if it sets a field that the
 *     library lacks.
 *   Result structs also begin with `struct_size`, set by the caller; at most that many bytes are
 *     written, and fields that the library lacks become zero.
 *   Text in is a pointer and a length in bytes, UTF-8, copied; a length of CAIRN_CSTRING means
 *     "up to the terminating zero". A NULL pointer is empty text. File names are the exception to
 *     UTF-8: any bytes but zero.
 *   Text out ends with a zero that its length does not count, and is borrowed: it stays valid until
 *     the object it came from is destroyed, never shorter.
 *   The library never ends the process, never prints, installs no signal handlers, opens no ports
 *     and has no state outside its handles. Two runtimes in one process do not know each other.
 *
 * THREADS
 *
 *   Runtime, model, store: any thread, concurrently.
 *   Session: any thread; calls are serialised, and while a turn runs appends give CAIRN_BUSY.
 *   Turn: one reader at a time; cairn_turn_cancel and cairn_turn_wake_fd from any thread.
 *   Events, errors, lists, buffers: may move between threads; reading them is safe from many.
 *   No handle may be used while another thread destroys it. Nothing may be used after fork() in the
 *   child, except to call exec or _exit.
 *
 *   A parameter that points to const means that concurrent calls on that object are fine.
 *
 * STABILITY
 *
 *   Functions, constants and struct fields are only added. The soname is libcairn.so.1. All of this
 *   file is since version 0.1. Until version 1.0 a change that breaks callers remains possible; it
 *   then changes CAIRN_ABI_VERSION and is listed in CHANGELOG.md.
 */
#ifndef CAIRN_CAIRN_H_
#define CAIRN_CAIRN_H_

#include <stddef.h>
#include <stdint.h>

/** Marks what the library exports. */
#if defined(__GNUC__)
#define CAIRN_API __attribute__((visibility("default")))
#else
#define CAIRN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Version -------------------------------------------------------------------------------- */

/** Of this header. Also defined by the C++ headers, with the same values. */
#ifndef CAIRN_VERSION_MAJOR
#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1 /**< likewise */
#define CAIRN_VERSION_PATCH 0 /**< likewise */
#endif
/** Rises when functions or fields are added. */
#define CAIRN_ABI_VERSION 4

/** The version of the running library, as "0.1.0". Static. Any thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_version(void);

/** CAIRN_ABI_VERSION of the running library. A binding written for a higher number should refuse to
 * start. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_abi_version(void);

/** 1 if the running library has the named feature, 0 if not or if `name` is unknown or NULL. Names:
 * "persistence" (sessions survive the process), "exact_restore", "bounded_restore", "tools",
 * "thinking", "fork", "quota", "encryption", "cuda". Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_has_feature(const char* name);

/* ---- Codes and errors ----------------------------------------------------------------------- */

typedef int32_t cairn_code; /**< CAIRN_OK or one of the following */
enum {
  CAIRN_OK = 0,
  CAIRN_INVALID_ARGUMENT = 1, /**< the caller's mistake; trying again does not help */
  CAIRN_NOT_FOUND = 2,        /**< no such file, session, turn */
  CAIRN_UNSUPPORTED = 3,      /**< valid, but this library does not handle it */
  CAIRN_CORRUPT = 4,          /**< stored data or a checkpoint is damaged or malformed */
  CAIRN_MODEL_MISMATCH = 5,   /**< the session was made by another model */
  CAIRN_BUSY = 6,             /**< another owner or writer holds the object; try later */
  CAIRN_CANCELLED = 7,
  CAIRN_OUT_OF_MEMORY = 8,
  CAIRN_OUT_OF_DISK = 9,
  CAIRN_IO_ERROR = 10,
  CAIRN_TIMEOUT = 11,      /**< nothing happened in the given time; the object is still usable */
  CAIRN_CONTEXT_FULL = 12, /**< the prompt or the answer does not fit the model's context */
  CAIRN_INTERNAL = 13,     /**< a defect of this library */
  CAIRN_ALREADY_EXISTS = 14
};

/** Length of a text argument that ends with a zero byte. */
#define CAIRN_CSTRING ((size_t)-1)

typedef struct cairn_error cairn_error; /**< why a call failed */

/** The code as an upper-case word, "NOT_FOUND"; "UNKNOWN" for other numbers. Static. Any thread.
 * Does not block. Since 0.1. */
CAIRN_API const char* cairn_code_name(cairn_code code);

/** The code of an error; CAIRN_OK for NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API cairn_code cairn_error_code(const cairn_error* error);
/** cairn_code_name of its code. Static. Any thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_error_name(const cairn_error* error);
/** What was attempted, on what, and what was found; "" for NULL. Borrowed until the error is
 * destroyed. Any thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_error_message(const cairn_error* error);
/** What to do about it, which may be ""; "" for NULL. Borrowed until the error is destroyed. Any
 * thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_error_hint(const cairn_error* error);

/** Frees an error and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_error_destroy(cairn_error** error);

/* ---- Owned results -------------------------------------------------------------------------- */

typedef struct cairn_buffer cairn_buffer; /**< bytes that the caller owns */

/** The bytes of a buffer, followed by a zero; their count in *n_bytes unless that is NULL. Borrowed
 * until the buffer is destroyed. A NULL buffer is empty. Any thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_buffer_bytes(const cairn_buffer* buffer, size_t* n_bytes);

/** Frees a buffer and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_buffer_destroy(cairn_buffer** buffer);

typedef struct cairn_token_list cairn_token_list; /**< tokens that the caller owns */

/** The token ids of a list; their count in *n_tokens unless that is NULL. Borrowed until the list is
 * destroyed; NULL if there are none. Any thread. Does not block. Since 0.1. */
CAIRN_API const int32_t* cairn_token_list_ids(const cairn_token_list* list, size_t* n_tokens);

/** Frees a list of tokens and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_token_list_destroy(cairn_token_list** list);

/* ---- Runtime -------------------------------------------------------------------------------- */

typedef struct cairn_runtime cairn_runtime; /**< threads and the log */

enum {
  CAIRN_LOG_DEFAULT = 0, /**< as CAIRN_LOG_INFO */
  CAIRN_LOG_TRACE = 1,
  CAIRN_LOG_DEBUG = 2,
  CAIRN_LOG_INFO = 3,
  CAIRN_LOG_WARN = 4,
  CAIRN_LOG_ERROR = 5
};

/** How much of the machine's instructions is used. Where it lacks a set, the best that it has below
 * is. Results are the same bits on every set; speed is not. */
enum {
  CAIRN_INSTRUCTIONS_BEST = 0,   /**< whatever the machine has: the default */
  CAIRN_INSTRUCTIONS_SCALAR = 1, /**< plain definitions: for checks */
  CAIRN_INSTRUCTIONS_AVX2 = 2,   /**< x86: AVX2 with FMA and F16C */
  CAIRN_INSTRUCTIONS_AVX512 = 3, /**< x86: AVX-512 with VNNI */
  CAIRN_INSTRUCTIONS_NEON = 4    /**< AArch64 */
};

/** One line of the log, without a newline. `text` is borrowed for the call and does not end with a
 * zero. Called from any thread, one call at a time. Must not call any function of this library. */
typedef void (*cairn_log_fn)(void* user, int32_t level, const char* text, size_t n_bytes);
/** Called once when the library will not use `user` again. Must not call this library either. */
typedef void (*cairn_finalize_fn)(void* user);

/** How a runtime computes and where its log goes. */
typedef struct cairn_runtime_options {
  size_t struct_size;             /**< sizeof this struct */
  int32_t compute_threads;        /**< threads that compute; 0 = one a compute_cpu, or one a core */
  int32_t log_level;              /**< CAIRN_LOG_...: the least level that is logged */
  cairn_log_fn log;               /**< NULL = silent */
  void* log_user;                 /**< passed to `log` and `log_finalize` */
  cairn_finalize_fn log_finalize; /**< may be NULL */
  /** CPUs that the threads run on, thread i on compute_cpus[i] only, none twice; borrowed during the
   * call. NULL = where the system puts them. */
  const int32_t* compute_cpus;
  size_t n_compute_cpus;   /**< as many as compute_threads, if that is not 0 */
  int32_t instruction_set; /**< CAIRN_INSTRUCTIONS_...: the most that computing may use */
  int32_t reserved;        /**< 0 */
} cairn_runtime_options;
/** Initialises a cairn_runtime_options. */
#define CAIRN_RUNTIME_OPTIONS_INIT \
  { sizeof(cairn_runtime_options), 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0 }

/** Sets every field to its default; the options stay the caller's. NULL is ignored. Any thread. Does
 * not block. Since 0.1. */
CAIRN_API void cairn_runtime_options_init(cairn_runtime_options* options);

/** Starts the threads on which the models of this runtime compute. The caller owns *runtime.
 * On success the library owns `log_user`: `log_finalize` is called exactly once, when the runtime
 * and all that keeps it alive are destroyed, on the thread that destroys the last of them. On
 * failure it is not called and `log_user` stays the caller's.
 * Any thread. Does not block. Codes: UNSUPPORTED; INVALID_ARGUMENT: a CPU that this process
 * cannot use. Since 0.1. */
CAIRN_API cairn_code cairn_runtime_create(const cairn_runtime_options* options,
                                          cairn_runtime** runtime, cairn_error** error);

/** Ends the threads of the runtime, once no model and store keeps it alive. Any thread. Blocks: until
 * a step that runs has ended. Since 0.1. */
CAIRN_API void cairn_runtime_destroy(cairn_runtime** runtime);

/* ---- Model ---------------------------------------------------------------------------------- */

typedef struct cairn_model cairn_model; /**< an open checkpoint */

enum {
  CAIRN_NUMERICS_REFERENCE = 0, /**< the vendor's rounding points: the default */
  CAIRN_NUMERICS_F32_CACHE = 1, /**< f32 activations, quantised cache: for checks */
  CAIRN_NUMERICS_F32 = 2        /**< f32 throughout: for checks */
};

/** Tokens proposed a step, at most. */
#define CAIRN_MAX_DRAFTS 8

/** How a model is opened. */
typedef struct cairn_model_options {
  size_t struct_size;    /**< sizeof this struct */
  int32_t numerics;      /**< CAIRN_NUMERICS_... */
  int32_t prefill_chunk; /**< tokens of one prefill step, cancel is seen at every layer of it; 0 =
                            as many as give each expert 8 on average, 64 to 512 */
  int32_t max_context;   /**< tokens; 0 = the checkpoint's own limit */
  int32_t reserved;      /**< 0 */
  int32_t drafts; /**< tokens that the checkpoint's draft stages propose a step, to be verified in one
                     pass; what is said is the same. 0 = as many as pay, none where there are no
                     stages; -1 = none; else that many, at most CAIRN_MAX_DRAFTS and the checkpoint's
                     block */
  int32_t reserved_2; /**< 0 */
} cairn_model_options;
/** Initialises a cairn_model_options. */
#define CAIRN_MODEL_OPTIONS_INIT \
  { sizeof(cairn_model_options), 0, 0, 0, 0, 0, 0 }

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_model_options_init(cairn_model_options* options);

/** The shape of a model and what its state takes. */
typedef struct cairn_model_info {
  size_t struct_size; /**< sizeof this struct */
  const char* architecture; /**< borrowed until the model is destroyed */
  const char* fingerprint; /**< hex; sessions restore only under the model they were made with */
  int32_t n_layers; /**< of the encoder and the decoder half */
  int32_t n_encoder_layers; /**< of the first half */
  int32_t vocab_size; /**< token ids are below it */
  int32_t max_context; /**< tokens */
  int32_t window; /**< tokens of sliding-window attention */
  int32_t reserved; /**< 0 */
  int64_t weight_bytes; /**< of all tensors */
  int64_t window_bytes; /**< of one sequence, all layers */
  int64_t global_kv_bytes_per_block; /**< of 128 tokens, all layers */
  double global_kv_bytes_per_token; /**< all layers */
} cairn_model_info;
/** Initialises a cairn_model_info. */
#define CAIRN_MODEL_INFO_INIT \
  { sizeof(cairn_model_info), NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Opens a checkpoint folder (config.json, *.safetensors, tokenizer.json) by memory map. The caller
 * owns *model. The files must not change while the model lives.
 * Any thread. Blocks: reads the folder. Codes: NOT_FOUND (a file is missing), UNSUPPORTED (another
 * architecture, an option the library lacks), CORRUPT (a tensor is missing, truncated or of the
 * wrong shape; the message names it), IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_model_open(const cairn_runtime* runtime, const char* folder,
                                      size_t folder_length, const cairn_model_options* options,
                                      cairn_model** model, cairn_error** error);

/** Fills *info; its strings are borrowed from the model. Any thread. Does not block. Codes: none.
 * Since 0.1. */
CAIRN_API cairn_code cairn_model_get_info(const cairn_model* model, cairn_model_info* info,
                                          cairn_error** error);

/** Ordinary text to tokens; spellings of special tokens in it stay text. The caller owns *tokens.
 * Any thread. Does not block. Codes: none. Since 0.1. */
CAIRN_API cairn_code cairn_model_tokenize(const cairn_model* model, const char* text,
                                          size_t text_length, cairn_token_list** tokens,
                                          cairn_error** error);

/** Tokens to bytes, which may begin or end inside a UTF-8 character. The caller owns *bytes.
 * Any thread. Does not block. Codes: none (INVALID_ARGUMENT: an unknown id). Since 0.1. */
CAIRN_API cairn_code cairn_model_detokenize(const cairn_model* model, const int32_t* tokens,
                                            size_t n_tokens, cairn_buffer** bytes,
                                            cairn_error** error);

/** Writes the prompt that a session of these messages would compute into *text, which the caller owns,
 * and the number of its tokens to *n_tokens; either may be NULL. `messages_json`: an array of messages
 * in the OpenAI chat shape, or the body of a request. `thinking` 1 = a thinking prompt with `effort`
 * 1..100 (0 = 75). Exact; does not run the model.
 * Any thread. Does not block. Codes: none (INVALID_ARGUMENT names the bad message). Since 0.1. */
CAIRN_API cairn_code cairn_model_render(const cairn_model* model, const char* messages_json,
                                        size_t messages_json_length, int32_t thinking,
                                        int32_t effort, cairn_buffer** text, int64_t* n_tokens,
                                        cairn_error** error);

/** Unmaps the files of the model, once no session keeps it alive. Any thread. Does not block.
 * Since 0.1. */
CAIRN_API void cairn_model_destroy(cairn_model** model);

/* ---- Store ---------------------------------------------------------------------------------- */

typedef struct cairn_store cairn_store; /**< an open directory of sessions */
typedef struct cairn_session_list cairn_session_list; /**< sessions as of a call */

/** Fills in the 32 bytes of a store's key, for hosts with a key store of their own. Returns 0, or
 * another number to make the opening fail with CAIRN_CANCELLED. Called once by the function that
 * opens, on its thread. Must not call any function of this library. */
typedef int32_t (*cairn_key_fn)(void* user, uint8_t* key);

/** How a store is opened. */
typedef struct cairn_store_options {
  size_t struct_size; /**< sizeof this struct */
  int32_t must_exist; /**< 0 = create the directory if it is missing */
  int32_t allow_network_file_system; /**< 0 = refuse NFS, SMB and the like: their locks and syncs are
                                        not to be trusted */
  int64_t quota_bytes; /**< most the directory may take on disk, at least 64 MiB; 0 = the smaller of
                          20 GB and what it takes now plus 10 % of the free space */
  int64_t live_bytes;  /**< memory for the live state of all its sessions; those above it are put to
                          disk and come back when used; 0 = an eighth of the machine's */
  /** Encryption (SECURITY.md): a passphrase or a key function. A store that is created with one is
   * encrypted and can be opened with it only. Both empty = without encryption. */
  const char* passphrase;
  size_t passphrase_length; /**< in bytes, or CAIRN_CSTRING */
  cairn_key_fn key;         /**< fills in the key; NULL = none */
  void* key_user;           /**< passed to `key` */
} cairn_store_options;
/** Initialises a cairn_store_options. */
#define CAIRN_STORE_OPTIONS_INIT \
  { sizeof(cairn_store_options), 0, 0, 0, 0, NULL, 0, NULL, NULL }

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_store_options_init(cairn_store_options* options);

/** What a store holds, what its opening found, and what it has done. */
typedef struct cairn_store_stats {
  size_t struct_size;    /**< sizeof this struct */
  int64_t bytes_on_disk; /**< allocated blocks of every file of the store */
  int64_t n_sessions;    /**< sessions in the store */
  int64_t n_blocks;      /**< KV blocks of 128 tokens */
  int64_t n_tails;       /**< exact states of session heads and marks */
  int64_t quota_bytes;   /**< most that the directory may take */
  int64_t bytes_live;    /**< live state in memory; equal blocks of two sessions count once */
  /** What opening found. `rolled_back`: the database was older than what had been acknowledged, so
   * somebody put an older copy in its place or the disk destroyed synced bytes. */
  const char* recovery_detail; /**< one sentence, "" if nothing happened; borrowed from the store */
  int64_t commits_lost;        /**< as far as known */
  int32_t rolled_back;         /**< 1 = older than it should be */
  int32_t reserved;            /**< 0 */
  /** Counters since the store was made. */
  int64_t turns;
  int64_t tokens_from_memory;    /**< of prompts, as in cairn_reuse */
  int64_t tokens_from_disk;      /**< likewise */
  int64_t tokens_replayed;       /**< likewise */
  int64_t tokens_prefilled;      /**< likewise */
  int64_t tokens_generated;      /**< of answers */
  int64_t bytes_committed;       /**< handed to the database */
  int64_t bytes_written;         /**< by the database: log, tables, compaction */
  int64_t blocks_written;        /**< KV blocks of 128 tokens */
  int64_t blocks_shared;         /**< not written because they were there */
  int64_t blocks_evicted;        /**< collected to keep the quota */
  int64_t tails_evicted;         /**< likewise */
  int64_t blocks_corrupt;        /**< failed their check and were dropped */
  int64_t tails_corrupt;         /**< likewise */
  int64_t commits_without_state; /**< quota or disk had no room for blocks: the log went on */
} cairn_store_stats;
/** Initialises a cairn_store_stats. */
#define CAIRN_STORE_STATS_INIT                                                                   \
  {                                                                                              \
    sizeof(cairn_store_stats), 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
        0, 0, 0, 0                                                                               \
  }

/** A session as its store knows it. */
typedef struct cairn_session_info {
  size_t struct_size; /**< sizeof this struct */
  const char* id; /**< 32 hex digits; borrowed from the session or the list */
  const char* name; /**< borrowed likewise */
  const char* model_fingerprint; /**< borrowed likewise */
  int64_t created_ms; /**< Unix time */
  int64_t used_ms; /**< Unix time */
  int64_t n_events; /**< entries of its own log */
  int64_t n_tokens; /**< at the head, as of the last commit */
  int32_t turn_open; /**< 1 if the last turn was interrupted: resume it */
  int32_t reserved; /**< 0 */
  const char* forked_from; /**< id of the session it was forked from, or ""; borrowed likewise */
  size_t n_labels; /**< see cairn_session_list_get_label */
} cairn_session_info;
/** Initialises a cairn_session_info. */
#define CAIRN_SESSION_INFO_INIT \
  { sizeof(cairn_session_info), NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, 0 }

/** Opens a directory that keeps sessions. One process owns it at a time. The caller owns *store.
 * Opening succeeds where the database was found older than it should be; cairn_store_get_stats says
 * so. A wrong or missing passphrase or key is INVALID_ARGUMENT.
 * Any thread. Blocks: disk. Codes: BUSY (the message has the owner's process id), NOT_FOUND,
 * CORRUPT, UNSUPPORTED (made by a newer version, a network file system), CANCELLED (by the key
 * function), OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_open(const cairn_runtime* runtime, const char* directory,
                                      size_t directory_length, const cairn_store_options* options,
                                      cairn_store** store, cairn_error** error);

/** The sessions of the store, newest use first, as of this call. Needs no model. The caller owns
 * *list. Any thread. Blocks: disk. Codes: CORRUPT, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_list(const cairn_store* store, cairn_session_list** list,
                                      cairn_error** error);

/** Fills *stats; its string is borrowed from the store. Any thread. Blocks: disk. Codes: IO_ERROR.
 * Since 0.1. */
CAIRN_API cairn_code cairn_store_get_stats(const cairn_store* store, cairn_store_stats* stats,
                                           cairn_error** error);

/** How many turns had this cause (CAIRN_MISS_...) in their reuse report, since the store was made.
 * Any thread. Blocks: disk. Codes: IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_count_misses(const cairn_store* store, int32_t cause,
                                              int64_t* count, cairn_error** error);

/** Removes a session: its text, its states, and the blocks that no other session reaches. The bytes
 * are out of the store's files when the call returns, but for text that forks of it show as well;
 * that goes with them. Any thread. Blocks: disk, for seconds in a large store. Codes: NOT_FOUND,
 * BUSY (it is open), OUT_OF_DISK, IO_ERROR; OUT_OF_MEMORY: it may be gone, and its bytes go with the
 * next collection then. Since 0.1. */
CAIRN_API cairn_code cairn_store_remove(cairn_store* store, const char* name, size_t name_length,
                                        cairn_error** error);

/** Gives a session another name. Any thread. Blocks: disk. Codes: NOT_FOUND, ALREADY_EXISTS, BUSY
 * (it runs a turn), OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_rename(cairn_store* store, const char* name, size_t name_length,
                                        const char* new_name, size_t new_name_length,
                                        cairn_error** error);

/** Replaces a session's labels by `n_labels` pairs of texts that end with a zero: at most 32, keys of
 * 1 to 64 bytes, values of at most 1024. Any thread. Blocks: disk. Codes: NOT_FOUND, BUSY (it runs a
 * turn), OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_set_labels(cairn_store* store, const char* name,
                                            size_t name_length, const char* const* keys,
                                            const char* const* values, size_t n_labels,
                                            cairn_error** error);

/** How much to free. */
typedef struct cairn_collect_options {
  size_t struct_size;   /**< sizeof this struct */
  int64_t target_bytes; /**< evict until the directory takes at most this; 0 = the quota */
  int32_t branches;     /**< 1 = also remove rewound branches without a mark, however young */
  int32_t reserved;     /**< 0 */
} cairn_collect_options;
/** Initialises a cairn_collect_options. */
#define CAIRN_COLLECT_OPTIONS_INIT \
  { sizeof(cairn_collect_options), 0, 0, 0 }

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_collect_options_init(cairn_collect_options* options);

/** What was freed. */
typedef struct cairn_collect_report {
  size_t struct_size;     /**< sizeof this struct */
  int64_t bytes_before;   /**< on disk */
  int64_t bytes_after;    /**< likewise */
  int64_t blocks_removed; /**< KV blocks of 128 tokens */
  int64_t tails_removed;  /**< exact states of heads and marks */
  int64_t events_removed; /**< log entries of branches */
} cairn_collect_report;
/** Initialises a cairn_collect_report. */
#define CAIRN_COLLECT_REPORT_INIT \
  { sizeof(cairn_collect_report), 0, 0, 0, 0, 0 }

/** Frees what nobody needs, then evicts down to the target. The store does this by itself near its
 * quota. Sessions go on meanwhile. `report` may be NULL.
 * Any thread. Blocks: disk, for seconds in a large store. Codes: IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_collect(cairn_store* store, const cairn_collect_options* options,
                                         cairn_collect_report* report, cairn_error** error);

/** Makes a session of a file that cairn_store_reader_export_session wrote. An empty `name` keeps the
 * name that it had. Any thread. Blocks: disk. Codes: ALREADY_EXISTS, NOT_FOUND (the file), CORRUPT,
 * UNSUPPORTED, OUT_OF_DISK, IO_ERROR; then nothing was made. OUT_OF_MEMORY: it may have been.
 * Since 0.1. */
CAIRN_API cairn_code cairn_store_import_session(cairn_store* store, const char* file,
                                                size_t file_length, const char* name,
                                                size_t name_length, cairn_error** error);

/** Closes the store, once no session keeps it alive; then another process may open it. Any thread.
 * Blocks: disk. Since 0.1. */
CAIRN_API void cairn_store_destroy(cairn_store** store);

/** The number of sessions in a list; 0 for NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API size_t cairn_session_list_size(const cairn_session_list* list);

/** Fills *info; its strings are borrowed from the list. Any thread. Does not block. Codes: none
 * (INVALID_ARGUMENT: `index` is not below the size). Since 0.1. */
CAIRN_API cairn_code cairn_session_list_get(const cairn_session_list* list, size_t index,
                                            cairn_session_info* info, cairn_error** error);

/** Label number `label_index` of session `index`; both texts are borrowed from the list. Any thread.
 * Does not block. Codes: none (INVALID_ARGUMENT: there is no such label). Since 0.1. */
CAIRN_API cairn_code cairn_session_list_get_label(const cairn_session_list* list, size_t index,
                                                  size_t label_index, const char** key,
                                                  const char** value, cairn_error** error);

/** Frees a list of sessions and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_session_list_destroy(cairn_session_list** list);

/* ---- Store reader --------------------------------------------------------------------------- */

/** A store seen from outside, as of its opening. Takes no lock and changes nothing, so that a process
 * may own the store and work in it meanwhile. Any thread, concurrently. */
typedef struct cairn_store_reader cairn_store_reader;

/** Opens a store for reading. Of `options` the passphrase and the key function are used; a wrong or
 * missing one is INVALID_ARGUMENT. The caller owns *reader.
 * Any thread. Blocks: disk. Codes: NOT_FOUND, CORRUPT, UNSUPPORTED, CANCELLED, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_reader_open(const char* directory, size_t directory_length,
                                             const cairn_store_options* options,
                                             cairn_store_reader** reader, cairn_error** error);

/** The sessions of the store, newest use first, as of the opening. The caller owns *list. Any thread.
 * Blocks: disk. Codes: CORRUPT, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_reader_list(const cairn_store_reader* reader,
                                             cairn_session_list** list, cairn_error** error);

/** What was checked. */
typedef struct cairn_verify_report {
  size_t struct_size;    /**< sizeof this struct */
  int64_t n_sessions;    /**< read and checked, as the following */
  int64_t n_events;      /**< log entries */
  int64_t n_blocks;      /**< KV blocks of 128 tokens */
  int64_t n_tails;       /**< exact states of heads and marks */
  int64_t bytes_checked; /**< of all values */
  int64_t n_problems;    /**< 0 = the store is sound */
} cairn_verify_report;
/** Initialises a cairn_verify_report. */
#define CAIRN_VERIFY_REPORT_INIT \
  { sizeof(cairn_verify_report), 0, 0, 0, 0, 0, 0 }

/** Reads and checks every value of the store. *problems, which the caller owns, has a line for each:
 * what is damaged, where, and what that costs. Both results may be NULL.
 * Any thread. Blocks: reads the whole store. Codes: IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_reader_verify(const cairn_store_reader* reader,
                                               cairn_verify_report* report,
                                               cairn_buffer** problems, cairn_error** error);

/** Writes one session with its state into a new file, which is not encrypted, for
 * cairn_store_import_session. Any thread. Blocks: disk. Codes: NOT_FOUND, ALREADY_EXISTS (the file),
 * CORRUPT, OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_store_reader_export_session(const cairn_store_reader* reader,
                                                       const char* name, size_t name_length,
                                                       const char* file, size_t file_length,
                                                       cairn_error** error);

/** Frees a reader. Any thread. Blocks: disk. Since 0.1. */
CAIRN_API void cairn_store_reader_destroy(cairn_store_reader** reader);

/* ---- Session -------------------------------------------------------------------------------- */

typedef struct cairn_session cairn_session; /**< an open conversation */
typedef struct cairn_turn cairn_turn; /**< one answer of the model */
typedef struct cairn_message_list cairn_message_list; /**< a conversation as of a call */

enum {
  CAIRN_RESTORE_EXACT = 0,  /**< results equal an uninterrupted run bit for bit: the default */
  CAIRN_RESTORE_BOUNDED = 1 /**< may replay one window only: faster, approximate, reported */
};

/** When what a session writes survives the death of the machine. All of it survives the death of the
 * process. */
enum {
  CAIRN_DURABILITY_GROUPED = 0, /**< appends, turn starts and turn ends are synced: the default */
  CAIRN_DURABILITY_SYNCED = 1,  /**< tokens too, before they are delivered (groups of 50 ms) */
  CAIRN_DURABILITY_BUFFERED = 2 /**< nothing waits for the disk */
};

/** What a session is made with; it keeps these for good. */
typedef struct cairn_session_options {
  size_t struct_size; /**< sizeof this struct */
  int32_t restore;    /**< CAIRN_RESTORE_... */
  int32_t thinking;   /**< 0 = chat prompts, 1 = the model reasons before it answers */
  int32_t effort;     /**< 1..100, with thinking only; 0 = 75 */
  int32_t durability; /**< CAIRN_DURABILITY_... */
  /** Sessions with different salts share no blocks, in memory or on disk. Any bytes, at most 1024. */
  const char* salt;
  size_t salt_bytes; /**< length of `salt` */
} cairn_session_options;
/** Initialises a cairn_session_options. */
#define CAIRN_SESSION_OPTIONS_INIT \
  { sizeof(cairn_session_options), 0, 0, 0, 0, NULL, 0 }

/** How a session is opened. */
typedef struct cairn_open_options {
  size_t struct_size; /**< sizeof this struct */
  int32_t allow_other_model; /**< 1 = go on with another model than the session was made with: what was
                                said is read as text, the stored state is of no use */
  int32_t reserved; /**< 0 */
} cairn_open_options;
/** Initialises a cairn_open_options. */
#define CAIRN_OPEN_OPTIONS_INIT \
  { sizeof(cairn_open_options), 0, 0 }

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_open_options_init(cairn_open_options* options);

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_session_options_init(cairn_session_options* options);

enum {
  CAIRN_THINKING_AS_SESSION = 0,
  CAIRN_THINKING_OFF = 1, /**< chat prompt */
  CAIRN_THINKING_ON = 2   /**< thinking prompt */
};

enum {
  CAIRN_PRIORITY_INTERACTIVE = 0, /**< a person waits */
  CAIRN_PRIORITY_AGENT = 1,
  CAIRN_PRIORITY_BACKGROUND = 2
};

enum {
  CAIRN_TOOL_CHOICE_AUTO = 0,
  CAIRN_TOOL_CHOICE_NONE = 1,
  CAIRN_TOOL_CHOICE_REQUIRED = 2, /**< nothing but one or more calls of declared tools */
  CAIRN_TOOL_CHOICE_NAMED = 3     /**< nothing but one call of tool_name */
};

/** How a turn chooses tokens and when it ends. Zero is the default in every field, which is why
 * greedy decoding is a field of its own: temperature 0 means "not given". */
typedef struct cairn_turn_options {
  size_t struct_size; /**< sizeof this struct */
  uint64_t seed; /**< the draw depends on (seed, position) only; 0 is a seed like others */
  int32_t max_tokens; /**< of this turn; 0 = 4096 */
  int32_t greedy; /**< 1 = always the most likely token; temperature, top_* are not used */
  float temperature; /**< 0 = 1.0; values near 0 approach greedy */
  float top_p; /**< keep the smallest set with this mass; 0 = 0.95, 1 = all */
  float min_p; /**< drop tokens below min_p times the most likely one; 0 = none */
  float repetition_penalty; /**< 0 = 1.0, which is none */
  float frequency_penalty; /**< subtracted once per earlier occurrence */
  float presence_penalty; /**< subtracted once if the token occurred */
  int32_t top_k; /**< keep the k most likely; 0 = all */
  int32_t penalty_window; /**< how many of the latest tokens the penalties look at; 0 = 256 */
  /** The prompt begins with mode and effort: a turn that changes them reuses nothing. */
  int32_t thinking; /**< CAIRN_THINKING_... */
  int32_t effort;   /**< 1..100; 0 = the session's */
  int32_t continue_answer; /**< 1 = go on with the last message, the assistant's, instead of answering:
                              its blocks are delivered first, cairn_event_replayed is 1 for them */
  int32_t priority; /**< CAIRN_PRIORITY_...: who goes first where several sessions run */
  /** Limits; 0 = none. */
  int32_t max_reasoning_tokens; /**< then the reasoning is ended and the answer begins */
  int32_t max_tool_calls;       /**< CAIRN_END_CALL_LIMIT when the model begins another */
  int64_t max_context_tokens;   /**< CAIRN_END_CONTEXT_LIMIT; a prompt as long is CONTEXT_FULL */
  int64_t max_time_ms;          /**< CAIRN_END_TIME_LIMIT: as if cancelled, and can be resumed */
  /** The answer's text ends before the first of these, which is never delivered: CAIRN_END_STOP_STRING.
   * n_stop texts, at most 16 of at most 256 bytes. Not looked for in reasoning and arguments. */
  const char* const* stop;
  size_t n_stop; /**< number of texts in `stop` */
  /** Rules for the message: tokens that cannot lead to it are not sampled. Reasoning stays free. What
   * a schema asks for that is not supported is UNSUPPORTED, with keyword and place. */
  int32_t constrain_tools; /**< 1 = calls name declared tools and their arguments meet the schemas;
                              implied by the other rules */
  int32_t tool_choice;                /**< CAIRN_TOOL_CHOICE_... */
  const char* tool_name;              /**< qualified where the tool has a namespace */
  size_t tool_name_length;            /**< in bytes, or CAIRN_CSTRING */
  const char* response_format_json;   /**< a JSON Schema that the text meets; NULL = any text */
  size_t response_format_json_length; /**< in bytes, or CAIRN_CSTRING */
} cairn_turn_options;
/** Initialises a cairn_turn_options. */
#define CAIRN_TURN_OPTIONS_INIT                                                                   \
  {                                                                                               \
    sizeof(cairn_turn_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, \
        0, 0, NULL, 0, NULL, 0                                                                    \
  }

/** As cairn_runtime_options_init. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_turn_options_init(cairn_turn_options* options);

/** Makes a session. `name` is 1 to 200 bytes and unique in the store. The caller owns *session.
 * Any thread. Blocks: disk. Codes: ALREADY_EXISTS, UNSUPPORTED, OUT_OF_DISK, IO_ERROR;
 * OUT_OF_MEMORY: it may have been made, and can be opened then. Since 0.1. */
CAIRN_API cairn_code cairn_session_create(const cairn_model* model, const cairn_store* store,
                                          const char* name, size_t name_length,
                                          const cairn_session_options* options,
                                          cairn_session** session, cairn_error** error);

/** Opens a session of the store, whatever the length of its history. The caller owns *session.
 * Any thread. Blocks: disk. Codes: NOT_FOUND, MODEL_MISMATCH, BUSY (open elsewhere in this
 * process), CORRUPT, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_session_open(const cairn_model* model, const cairn_store* store,
                                        const char* name, size_t name_length,
                                        cairn_session** session, cairn_error** error);

/** cairn_session_open with options, which may be NULL. The caller owns *session. Any thread. Blocks:
 * disk. Codes: those of cairn_session_open. Since 0.1. */
CAIRN_API cairn_code cairn_session_open_with_options(const cairn_model* model,
                                                     const cairn_store* store, const char* name,
                                                     size_t name_length,
                                                     const cairn_open_options* options,
                                                     cairn_session** session, cairn_error** error);

/** cairn_session_open, and cairn_session_create if there is none. `options` are those of the
 * creation and are ignored where the session exists. The caller owns *session. Any thread. Blocks:
 * disk. Codes: those of these two. Since 0.1. */
CAIRN_API cairn_code cairn_session_open_or_create(const cairn_model* model,
                                                  const cairn_store* store, const char* name,
                                                  size_t name_length,
                                                  const cairn_session_options* options,
                                                  cairn_session** session, cairn_error** error);

/* The append functions add one message to the log and do not run the model. The message is synced
 * to disk when they return; on failure nothing is logged. An interrupted turn is closed by them and
 * keeps what it said. */

/** Appends instructions for the model. `tools_json`: a JSON array of tools in the OpenAI shape, or
 * empty. Any thread. Blocks: disk. Codes: BUSY (a turn runs), CONTEXT_FULL (the prompt would leave
 * no room for an answer; the message has both numbers), OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_session_append_system(cairn_session* session, const char* text,
                                                 size_t text_length, const char* tools_json,
                                                 size_t tools_json_length, cairn_error** error);

/** Appends what the user says. Any thread. Blocks: disk. Codes: those of cairn_session_append_system.
 * Since 0.1. */
CAIRN_API cairn_code cairn_session_append_user(cairn_session* session, const char* text,
                                               size_t text_length, cairn_error** error);

/** Appends what a tool returned. `tool_call_id` is the id of the call it answers; INVALID_ARGUMENT if no call
 * with this id waits for its result, and the hint names those that do. Results of parallel calls may
 * come in any order. Any thread. Blocks: disk. Codes: those of cairn_session_append_system.
 * Since 0.1. */
CAIRN_API cairn_code cairn_session_append_tool_result(cairn_session* session,
                                                      const char* tool_call_id,
                                                      size_t tool_call_id_length, const char* text,
                                                      size_t text_length, cairn_error** error);

/** Appends one message, a JSON object in the OpenAI chat shape. INVALID_ARGUMENT names the bad field.
 * Any thread. Blocks: disk. Codes: UNSUPPORTED (the message holds an image) and those of
 * cairn_session_append_system. Since 0.1. */
CAIRN_API cairn_code cairn_session_append_json(cairn_session* session, const char* json,
                                               size_t json_length, cairn_error** error);

/** Starts the model's answer to what was appended. The caller owns *turn and pulls its events. One
 * turn of a session at a time.
 * Any thread. Does not wait for the model. Codes: BUSY (a turn runs), UNSUPPORTED, NOT_FOUND (the
 * named tool is not declared), CONTEXT_FULL, OUT_OF_DISK, IO_ERROR; OUT_OF_MEMORY: the turn may be
 * open, and can be resumed then; INVALID_ARGUMENT: there is nothing to answer. What fails later
 * arrives with CAIRN_EVENT_TURN_END. Since 0.1. */
CAIRN_API cairn_code cairn_session_start_turn(cairn_session* session,
                                              const cairn_turn_options* options, cairn_turn** turn,
                                              cairn_error** error);

/** Continues the turn that a crash or a cancel interrupted, with the options it was started with:
 * delivers the events of what is in the log again (cairn_event_replayed is 1), then goes on.
 * The caller owns *turn. Any thread. Does not wait for the model. Codes: NOT_FOUND (no turn is open)
 * and those of cairn_session_start_turn. Since 0.1.
 *
 * @code{.c}
 *     cairn_session_info info = CAIRN_SESSION_INFO_INIT;
 *     cairn_session_get_info(session, &info, NULL);
 *     if (info.turn_open) cairn_session_resume_turn(session, &turn, NULL);
 * @endcode */
CAIRN_API cairn_code cairn_session_resume_turn(cairn_session* session, cairn_turn** turn,
                                               cairn_error** error);

/** Counts the tokens of the prompt that cairn_session_start_turn would compute with `options`, after
 * appending `messages_json`, an array of messages in the OpenAI chat shape, or empty. Exact; does not
 * run the model. Any thread. Blocks: disk, at the session's first use. Codes: CORRUPT, IO_ERROR.
 * Since 0.1. */
CAIRN_API cairn_code cairn_session_count_tokens(const cairn_session* session,
                                                const char* messages_json,
                                                size_t messages_json_length,
                                                const cairn_turn_options* options,
                                                int64_t* n_tokens, cairn_error** error);

/** The last turn that was started through `session`, for a new reader: it gets TURN_STARTED, the blocks'
 * events that are numbered above `after` (0 = all) and were not acknowledged, and what follows. The
 * turn may have ended, in an earlier process too. Who read it until then gets BUSY. The caller owns
 * *turn. Any thread. Does not wait for the model. Codes: NOT_FOUND (no turn, or it was interrupted: see
 * cairn_session_resume_turn), CORRUPT, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_session_attach_turn(cairn_session* session, uint64_t after,
                                               cairn_turn** turn, cairn_error** error);

/** The conversation as of this call, without the turn that is open. The caller owns *list. This is
 * how a new process finds its place. Any thread. Blocks: disk. Codes: CORRUPT, IO_ERROR.
 * Since 0.1. */
CAIRN_API cairn_code cairn_session_get_messages(const cairn_session* session,
                                                cairn_message_list** list, cairn_error** error);

/* The log of a session is a tree. A mark names a place in it; a rewind goes back to one, and what
 * came after stays as a branch until it is collected; a fork is another session that begins the same
 * and shares text and blocks. None of them depends on the length of the session. Places are events:
 * numbers that stay valid, in forks too. BUSY while a turn runs. */

/** Marks the present place and writes its event to *event. `name` may be empty. `keep_state` 1 keeps
 * the exact state too, if it is stored: coming back then needs no replay.
 * Any thread. Blocks: disk. Codes: BUSY, OUT_OF_DISK, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_session_mark(cairn_session* session, const char* name,
                                        size_t name_length, int32_t keep_state, uint64_t* event,
                                        cairn_error** error);

typedef struct cairn_mark_list cairn_mark_list; /**< marks as of a call */

/** A place in the log of a session that has a name, or the end of a branch. */
typedef struct cairn_mark {
  size_t struct_size; /**< sizeof this struct */
  uint64_t event;     /**< the place: see cairn_session_rewind */
  const char* name;   /**< "" for the end of a rewound branch; borrowed from the list */
  int64_t time_ms;    /**< Unix time */
  int64_t n_tokens;   /**< of the head there, as far as computed */
  int32_t has_state;  /**< 1 = its exact state is stored */
  int32_t rewound;    /**< 1 = the end of a branch that a rewind left */
} cairn_mark;
/** Initialises a cairn_mark. */
#define CAIRN_MARK_INIT \
  { sizeof(cairn_mark), 0, NULL, 0, 0, 0, 0 }

/** Marks and ends of rewound branches, oldest first. The caller owns *list. Any thread. Blocks: reads
 * the log. Codes: CORRUPT, IO_ERROR. Since 0.1. */
CAIRN_API cairn_code cairn_session_get_marks(const cairn_session* session, cairn_mark_list** list,
                                             cairn_error** error);

/** The number of marks; 0 for NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API size_t cairn_mark_list_size(const cairn_mark_list* list);

/** Fills *mark; its string is borrowed from the list. Any thread. Does not block. Codes: none
 * (INVALID_ARGUMENT: `index` is not below the size). Since 0.1. */
CAIRN_API cairn_code cairn_mark_list_get(const cairn_mark_list* list, size_t index,
                                         cairn_mark* mark, cairn_error** error);

/** Frees a list of marks and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_mark_list_destroy(cairn_mark_list** list);

/** Goes back to a mark, or to any other event of the session.
 * Any thread. Blocks: disk. Codes: NOT_FOUND, BUSY, OUT_OF_DISK, IO_ERROR. Since 0.1.
 *
 * @code{.c}
 *     uint64_t here = 0;
 *     cairn_session_mark(session, "before", CAIRN_CSTRING, 1, &here, NULL);
 *     cairn_session_append_user(session, "Try this.", CAIRN_CSTRING, NULL);
 *     cairn_session_rewind(session, here, NULL);
 * @endcode */
CAIRN_API cairn_code cairn_session_rewind(cairn_session* session, uint64_t event,
                                          cairn_error** error);

/** Makes the session `name`, which begins as this one is at `event` (0 = now). Either may be removed
 * without harm to the other. The caller owns *fork.
 * Any thread. Blocks: disk. Codes: NOT_FOUND, ALREADY_EXISTS, BUSY, OUT_OF_DISK, IO_ERROR;
 * OUT_OF_MEMORY: it may have been made, and can be opened then. Since 0.1. */
CAIRN_API cairn_code cairn_session_fork(const cairn_session* session, uint64_t event,
                                        const char* name, size_t name_length, cairn_session** fork,
                                        cairn_error** error);

/* For clients that send the whole conversation with each request. `body` is the request as it came: an
 * object of the Chat Completions, Anthropic Messages or Responses shape, or an array of chat messages.
 * Each message is found in the session however the client has written it (key order, numbers, null
 * content, dropped or moved reasoning, merged results, other ids), and answers that are found keep the
 * tokens that the model sampled. What cannot be found is appended; where something earlier has changed,
 * the session goes back, or to a branch that it left before. */

/** How a given conversation is read. */
typedef struct cairn_sync_options {
  size_t struct_size; /**< sizeof this struct */
  /** Lines of system messages that begin like one of these, one a line, change between requests (the
   * date, the state of a work tree): they stand in a reminder before the newest turn instead, and cost
   * their own tokens only. Parts of a message that have "volatile": true do, too. */
  const char* volatile_lines;
  size_t volatile_lines_bytes; /**< length of `volatile_lines` */
} cairn_sync_options;
/** Initialises a cairn_sync_options. */
#define CAIRN_SYNC_OPTIONS_INIT \
  { sizeof(cairn_sync_options), NULL, 0 }

/** What a sync found and did. */
typedef struct cairn_sync {
  size_t struct_size;         /**< sizeof this struct */
  int64_t n_messages;         /**< given */
  int64_t n_kept;             /**< of these: they stand in the log already */
  int64_t n_appended;         /**< of these: written to it */
  int64_t n_left;             /**< stored messages that are not part of the conversation now */
  uint64_t forked_at;         /**< the event that the session went back to; 0 = before the first */
  int64_t prompt_tokens;      /**< of the next turn's prompt, in the session's mode */
  int64_t common_tokens;      /**< of these, before the first that differs from what was there */
  int64_t difference_byte;    /**< as in cairn_reuse */
  int32_t difference_message; /**< -1 = none */
  int32_t cause;              /**< CAIRN_MISS_...: of the difference */
  int32_t forked;             /**< 1 = the session went back; what it left stays as a branch */
  int32_t reserved;           /**< 0 */
} cairn_sync;
/** Initialises a cairn_sync. */
#define CAIRN_SYNC_INIT \
  { sizeof(cairn_sync), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Makes the conversation that of `body`. One commit; an interrupted turn is closed. *details, which
 * the caller owns, says everything as a JSON object: how each message was found, the bytes of both
 * sides at the difference, the tool that changed. `options`, `sync` and `details` may be NULL.
 * Any thread. Blocks: disk. Codes: those of the append functions; UNSUPPORTED: an image;
 * OUT_OF_MEMORY: it may be done, and the same call again finds that it is. Since 0.1. */
CAIRN_API cairn_code cairn_session_sync(cairn_session* session, const char* body,
                                        size_t body_length, const cairn_sync_options* options,
                                        cairn_sync* sync, cairn_buffer** details,
                                        cairn_error** error);

/** What a turn would reuse and cost. */
typedef struct cairn_plan {
  size_t struct_size;    /**< sizeof this struct */
  int64_t prompt_tokens; /**< as in cairn_reuse */
  int64_t from_memory;   /**< as in cairn_reuse */
  int64_t from_disk;     /**< as in cairn_reuse */
  int64_t replayed;      /**< as in cairn_reuse */
  int64_t prefilled;     /**< as in cairn_reuse */
  int64_t lost_tokens;   /**< as in cairn_reuse */
  int64_t bytes_read;    /**< as in cairn_reuse */
  int64_t memory_bytes;  /**< of live state while the turn runs, pages that others share included */
  double restore_ms;     /**< estimates from what the session measured; 0 = nothing yet */
  double prefill_ms;     /**< likewise */
  double lost_ms;        /**< likewise */
  int32_t exact;         /**< as in cairn_reuse */
  int32_t cause;         /**< CAIRN_MISS_... */
} cairn_plan;
/** Initialises a cairn_plan. */
#define CAIRN_PLAN_INIT \
  { sizeof(cairn_plan), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What cairn_session_start_turn with `turn_options` would reuse and cost, after cairn_session_sync of
 * `body` with `sync_options` unless `body` is empty. Changes nothing, does not run the model. *details,
 * which the caller owns, is as above, for both. Everything but `session` and `plan` may be NULL.
 * Any thread. Blocks: disk, and while the model computes one step of another session. Codes: BUSY (a
 * turn runs) and those of cairn_session_sync. Since 0.1. */
CAIRN_API cairn_code cairn_session_plan(const cairn_session* session, const char* body,
                                        size_t body_length, const cairn_sync_options* sync_options,
                                        const cairn_turn_options* turn_options, cairn_plan* plan,
                                        cairn_buffer** details, cairn_error** error);

/** Fills *info; its strings are borrowed from the session. Any thread. Does not wait for the model,
 * but may for a write of the session to disk. Codes: none. Since 0.1. */
CAIRN_API cairn_code cairn_session_get_info(const cairn_session* session, cairn_session_info* info,
                                            cairn_error** error);

/** Closes the session unless a turn keeps it open. What was acknowledged is on disk already. Any
 * thread. Blocks: until a turn that was detached has stopped. Since 0.1. */
CAIRN_API void cairn_session_destroy(cairn_session** session);

/* ---- Messages ------------------------------------------------------------------------------- */

enum {
  CAIRN_ROLE_SYSTEM = 0,
  CAIRN_ROLE_USER = 1,
  CAIRN_ROLE_ASSISTANT = 2,
  CAIRN_ROLE_TOOL = 3,
  CAIRN_ROLE_LATEST_REMINDER = 4
};

/** One message of a conversation. */
typedef struct cairn_message {
  size_t struct_size; /**< sizeof this struct */
  const char* text; /**< all text of the message; borrowed from the list, as the others */
  size_t text_bytes; /**< length of `text` */
  const char* reasoning; /**< assistant */
  size_t reasoning_bytes; /**< length of `reasoning` */
  const char* tool_call_id; /**< tool: the call that this message answers */
  size_t n_tool_calls; /**< assistant: see cairn_message_list_get_tool_call */
  int32_t role; /**< CAIRN_ROLE_... */
  int32_t reserved; /**< 0 */
  uint64_t event; /**< id of the message, and the place after it: see cairn_session_rewind */
} cairn_message;
/** Initialises a cairn_message. */
#define CAIRN_MESSAGE_INIT \
  { sizeof(cairn_message), NULL, 0, NULL, 0, NULL, 0, 0, 0, 0 }

/** One call of a tool by the model. Strings are borrowed from where the call came from. */
typedef struct cairn_tool_call {
  size_t struct_size;         /**< sizeof this struct */
  const char* id;             /**< give it back with cairn_session_append_tool_result */
  const char* name;           /**< "ns::name" where the tool has a namespace */
  const char* arguments_json; /**< a JSON object */
  size_t arguments_bytes;     /**< length of `arguments_json` */
  int32_t malformed;          /**< 1 = the model broke the format and the call is a best guess */
  int32_t reserved;           /**< 0 */
} cairn_tool_call;
/** Initialises a cairn_tool_call. */
#define CAIRN_TOOL_CALL_INIT \
  { sizeof(cairn_tool_call), NULL, NULL, NULL, 0, 0, 0 }

/** The number of messages; 0 for NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API size_t cairn_message_list_size(const cairn_message_list* list);

/** Fills *message; its strings are borrowed from the list. Any thread. Does not block. Codes: none
 * (INVALID_ARGUMENT: `index` is not below the size). Since 0.1. */
CAIRN_API cairn_code cairn_message_list_get(const cairn_message_list* list, size_t index,
                                            cairn_message* message, cairn_error** error);

/** Fills *call with call number `call_index` of message `index`; its strings are borrowed from the
 * list. Any thread. Does not block. Codes: none (INVALID_ARGUMENT: there is no such call).
 * Since 0.1. */
CAIRN_API cairn_code cairn_message_list_get_tool_call(const cairn_message_list* list, size_t index,
                                                      size_t call_index, cairn_tool_call* call,
                                                      cairn_error** error);

/** Frees a list of messages and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_message_list_destroy(cairn_message_list** list);

/* ---- Turn ----------------------------------------------------------------------------------- */

typedef struct cairn_event cairn_event; /**< one thing that happened in a turn */

/** The next event, waiting at most `timeout_ms` (negative = for ever, 0 = do not wait). The caller
 * owns *event. One reader at a time.
 * What goes wrong in the turn itself is the error of CAIRN_EVENT_TURN_END. The turn does not wait for
 * its reader. Any thread. Blocks: as long as said.
 * Codes: two are answers rather than failures and come without an error object, TIMEOUT (no event
 * yet; call again) and NOT_FOUND (CAIRN_EVENT_TURN_END was delivered); BUSY (another reader
 * attached). Since 0.1.
 *
 * @code{.c}
 *     while (cairn_turn_next(turn, -1, &event, NULL) == CAIRN_OK) {
 *       fputs(cairn_event_bytes(event, NULL), stdout);
 *       cairn_event_destroy(&event);
 *     }
 *     cairn_turn_destroy(&turn);
 * @endcode */
CAIRN_API cairn_code cairn_turn_next(cairn_turn* turn, int64_t timeout_ms, cairn_event** event,
                                     cairn_error** error);

/** Asks the turn to stop: within one prefill chunk or one decode step it ends with
 * CAIRN_END_CANCELLED. What was delivered is kept and cairn_session_resume_turn can go on.
 * Idempotent; NULL is ignored. Any thread; not from a signal handler. Does not block. Since 0.1. */
CAIRN_API void cairn_turn_cancel(cairn_turn* turn);

/** Ends the reasoning at the next token, so that the answer begins; does nothing where the model is not
 * reasoning. The log has it: a resumed turn does not begin to think again. Any thread. Does not block.
 * Codes: UNSUPPORTED (the tokenizer has no such token). Since 0.1. */
CAIRN_API cairn_code cairn_turn_end_thinking(cairn_turn* turn, cairn_error** error);

/** Events up to number `sequence` need not be delivered again to a reader that attaches. Any thread.
 * Does not block. Since 0.1. */
CAIRN_API void cairn_turn_acknowledge(cairn_turn* turn, uint64_t sequence);

/** Destroys the handle but lets the turn go on: cairn_session_attach_turn reads on. It is stopped, and
 * can be resumed, when the session's handle is destroyed. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_turn_detach(cairn_turn** turn);

/** A descriptor, borrowed from the turn, that is readable while an event waits; for poll, select and
 * epoll only: do not read, write or close it. Valid until the turn is destroyed; -1 for NULL. Any thread. Does not block.
 * Since 0.1. */
CAIRN_API int cairn_turn_wake_fd(const cairn_turn* turn);

/** Cancels the turn if it runs; cairn_session_resume_turn can go on. Any thread. Blocks: until its
 * current step has ended. Since 0.1. */
CAIRN_API void cairn_turn_destroy(cairn_turn** turn);

/* ---- Event ---------------------------------------------------------------------------------- */

/** The order of a turn: TURN_STARTED, PREFILL_PROGRESS..., then blocks (BLOCK_BEGIN, BLOCK_BYTES...,
 * BLOCK_END), USAGE, TURN_END. Ignore kinds you do not know. */
enum {
  CAIRN_EVENT_TURN_STARTED = 0,     /**< cairn_event_get_reuse */
  CAIRN_EVENT_PREFILL_PROGRESS = 1, /**< cairn_event_get_progress */
  CAIRN_EVENT_BLOCK_BEGIN = 2,      /**< block, block_kind; a tool call has its id and name */
  CAIRN_EVENT_BLOCK_BYTES = 3,      /**< block, bytes: whole characters; arguments as JSON text */
  CAIRN_EVENT_BLOCK_END = 4,        /**< block; a tool call is complete */
  CAIRN_EVENT_USAGE = 5,            /**< cairn_event_get_usage, cairn_event_get_reuse */
  CAIRN_EVENT_TURN_END = 6,         /**< end_reason, error; the last event */
  CAIRN_EVENT_DURABLE = 7           /**< progress: `done` output tokens survive the process */
};
enum { CAIRN_BLOCK_REASONING = 0, CAIRN_BLOCK_TEXT = 1, CAIRN_BLOCK_TOOL_CALL = 2 };
enum {
  CAIRN_END_STOP = 0,       /**< the model ended its message */
  CAIRN_END_TOOL_CALLS = 1, /**< the model ended its message with tool calls */
  CAIRN_END_LENGTH = 2,     /**< max_tokens or the context was reached */
  CAIRN_END_CANCELLED = 3,
  CAIRN_END_ERROR = 4, /**< see cairn_event_error */
  CAIRN_END_CONTEXT_LIMIT = 5,
  CAIRN_END_TIME_LIMIT = 6,
  CAIRN_END_CALL_LIMIT = 7,
  CAIRN_END_STOP_STRING = 8 /**< cairn_event_bytes has it */
};
enum {
  CAIRN_MISS_NONE = 0, /**< everything known was reused */
  CAIRN_MISS_NEW_TOKENS = 1, /**< the rest of the prompt was never computed */
  CAIRN_MISS_PROMPT_CHANGED = 2, /**< the prompt differs in a way that has no name here */
  CAIRN_MISS_NOT_STORED = 3, /**< a prefix was computed once but never reached the store */
  CAIRN_MISS_CORRUPT = 4, /**< something stored failed its check and was dropped */
  CAIRN_MISS_REPLAY_NEEDED = 5, /**< tokens were restored, their window state was recomputed */
  CAIRN_MISS_EVICTED = 6, /**< a stored prefix was collected to keep the quota */
  CAIRN_MISS_OTHER_MODEL = 7, /**< the stored state is of the model that the session had before */
  /** The prompt differs from the stored one before its end, and this is why: */
  CAIRN_MISS_SYSTEM_CHANGED = 8, /**< text or response format of a system message */
  CAIRN_MISS_TOOLS_CHANGED = 9, /**< the list of tools, or one of them: see `tool` */
  CAIRN_MISS_MESSAGE_EDITED = 10, /**< a message that was there before says something else */
  CAIRN_MISS_ANSWER_REWRITTEN = 11, /**< an assistant message came back in other words or tokens */
  CAIRN_MISS_REASONING_DROPPED = 12, /**< the format no longer shows an earlier answer's reasoning */
  CAIRN_MISS_MODE_CHANGED = 13, /**< thinking or effort, which the prompt begins with */
  CAIRN_MISS_HEAD_MOVED = 14 /**< the session went back to where less is stored */
};

/** Where the state for the turn's prompt came from:
 * prompt_tokens = from_memory + from_disk + prefilled. The `replayed` tokens are among the reused
 * ones: their global KV was reused, their sliding windows were computed again.
 *
 * In an exact session `prefilled` is what was appended since the turn before (`prompt_tokens` less
 * that turn's `context_used`), and 1: the token that it sampled last, which no step has read yet. */
typedef struct cairn_reuse {
  size_t struct_size;       /**< sizeof this struct */
  int64_t prompt_tokens;    /**< of the whole prompt */
  int64_t from_memory;      /**< of these: their state was live */
  int64_t from_disk;        /**< of these: their state was read from the store */
  int64_t replayed;         /**< of these two: their windows were computed again */
  int64_t prefilled;        /**< of the prompt: computed by this turn */
  int64_t first_difference; /**< token index where prompt and stored tokens part; -1 = none */
  double restore_ms;        /**< time that reading and replaying took */
  const char* detail;       /**< one sentence for a person; borrowed from the event */
  int32_t exact;            /**< 0 = bounded replay took part, now or earlier in this session */
  int32_t tail_restored;    /**< 1 = the exact state of the head came from disk */
  int32_t cause;            /**< CAIRN_MISS_...: why not more was reused */
  int32_t reserved;         /**< 0 */
  int64_t bytes_read;       /**< of blocks and tails, from disk */
  /** Where first_difference is: the message (-1 = none), the byte in what the prompt shows of it, and
   * at most 40 bytes from there on, of what is stored and of this prompt. Borrowed as `detail`. */
  int64_t difference_byte;
  const char* stored_text; /**< of what is stored */
  const char* given_text; /**< of this prompt */
  const char* tool; /**< CAIRN_MISS_TOOLS_CHANGED: the first tool that differs */
  int32_t difference_message; /**< index in the conversation; -1 = none */
  int32_t reserved_2; /**< 0 */
  int64_t lost_tokens; /**< prefilled again although the session had computed their messages before */
  double lost_ms; /**< what these take at the session's measured speed; 0 = not measured */
} cairn_reuse;
/** Initialises a cairn_reuse. */
#define CAIRN_REUSE_INIT \
  { sizeof(cairn_reuse), 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0, 0 }

/** What a turn has produced and taken. */
typedef struct cairn_usage {
  size_t struct_size;       /**< sizeof this struct */
  int64_t output_tokens;    /**< sampled, by this and earlier runs of the turn */
  int64_t reasoning_tokens; /**< among the output tokens */
  int64_t resumed_tokens;   /**< output tokens that were in the log already */
  int64_t context_used;     /**< prompt and answer: the next prompt begins with these tokens */
  int64_t context_size;     /**< tokens */
  int64_t bytes_written;    /**< handed to the store by this turn */
  double queued_ms;         /**< until the turn began to run */
  double prefill_ms;        /**< in prefill steps */
  double first_token_ms;    /**< from the start of the turn to its first token */
  double decode_ms;         /**< in decode steps */
  int64_t draft_rounds;     /**< steps that verified a proposal, see cairn_model_options.drafts */
  int64_t drafts_proposed;  /**< tokens, in all rounds */
  int64_t drafts_accepted;  /**< of these: said by the turn, in the pass that verified them */
  int64_t rounds_by_accepted[CAIRN_MAX_DRAFTS + 1]; /**< rounds by how many tokens were accepted */
  double draft_ms;          /**< proposing */
  double verify_ms;         /**< in the passes of these rounds */
  int64_t drafts_withheld;  /**< steps without a proposal, since drafts had not paid of late */
} cairn_usage;
/** Initialises a cairn_usage. */
#define CAIRN_USAGE_INIT \
  { sizeof(cairn_usage), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0 }, 0, 0, 0 }

/* Accessors of an event. A field that the event's kind does not have is 0, -1 or "" as noted; so is
 * every field of NULL. */

/** CAIRN_EVENT_...; -1 for NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_event_kind(const cairn_event* event);
/** Rises within the session. The same tokens of a turn give the same blocks' events with the same
 * numbers for every reader, after a restart too; numbers of the other events are of one run of the
 * turn. Any thread. Does not block. Since 0.1. */
CAIRN_API uint64_t cairn_event_sequence(const cairn_event* event);
/** 1 = was said before this reader. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_event_replayed(const cairn_event* event);
/** Number of the block in the turn, or -1. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_event_block(const cairn_event* event);
/** CAIRN_BLOCK_..., of the events that have a block. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_event_block_kind(const cairn_event* event);
/** CAIRN_END_..., of CAIRN_EVENT_TURN_END. Any thread. Does not block. Since 0.1. */
CAIRN_API int32_t cairn_event_end_reason(const cairn_event* event);

/** The bytes of CAIRN_EVENT_BLOCK_BYTES, followed by a zero; their count in *n_bytes unless that is
 * NULL. Borrowed until the event is destroyed. Any thread. Does not block. Since 0.1. */
CAIRN_API const char* cairn_event_bytes(const cairn_event* event, size_t* n_bytes);

/** Tokens of the prompt whose state there is, and of the whole prompt; of CAIRN_EVENT_DURABLE, `done`
 * output tokens. Either pointer may be NULL. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_event_get_progress(const cairn_event* event, int64_t* done, int64_t* total);
/** How many tokens of the prompt were reused, and the time that its prefill will still take as
 * estimated from the speed so far, -1 = not known. Either pointer may be NULL. Any thread. Does not
 * block. Since 0.1. */
CAIRN_API void cairn_event_get_estimate(const cairn_event* event, int64_t* reused,
                                        double* remaining_ms);

/* These fill a struct whose strings are borrowed until the event is destroyed; the values are zero or
 * empty if the event's kind has none. */

/** The call of a block of the kind CAIRN_BLOCK_TOOL_CALL, complete at its CAIRN_EVENT_BLOCK_END. Its
 * strings are borrowed from the event. Any thread. Does not block. Codes: none. Since 0.1.
 *
 * @code{.c}
 *     cairn_tool_call call = CAIRN_TOOL_CALL_INIT;
 *     if (cairn_event_kind(event) == CAIRN_EVENT_BLOCK_END &&
 *         cairn_event_block_kind(event) == CAIRN_BLOCK_TOOL_CALL &&
 *         cairn_event_get_tool_call(event, &call, NULL) == CAIRN_OK) {
 *       printf("%s(%s)\n", call.name, call.arguments_json);
 *     }
 * @endcode */
CAIRN_API cairn_code cairn_event_get_tool_call(const cairn_event* event, cairn_tool_call* call,
                                               cairn_error** error);
/** Where the state for the prompt came from, of CAIRN_EVENT_TURN_STARTED and CAIRN_EVENT_USAGE. Its
 * strings are borrowed from the event. Any thread. Does not block. Codes: none. Since 0.1. */
CAIRN_API cairn_code cairn_event_get_reuse(const cairn_event* event, cairn_reuse* reuse,
                                           cairn_error** error);
/** What the turn has produced and taken, of CAIRN_EVENT_USAGE. Any thread. Does not block. Codes:
 * none. Since 0.1. */
CAIRN_API cairn_code cairn_event_get_usage(const cairn_event* event, cairn_usage* usage,
                                           cairn_error** error);

/** Why the turn failed, borrowed until the event is destroyed; NULL if it did not. Any thread. Does
 * not block. Since 0.1. */
CAIRN_API const cairn_error* cairn_event_error(const cairn_event* event);

/** Frees an event and what was borrowed from it. Any thread. Does not block. Since 0.1. */
CAIRN_API void cairn_event_destroy(cairn_event** event);

#ifdef __cplusplus
}
#endif

#endif /* CAIRN_CAIRN_H_ */
