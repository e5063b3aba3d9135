/** @file
 * Raw sequences: tokens in, logits out, for tests, benchmarks and research. UNSTABLE: what is here
 * may change or go in any version, without a new CAIRN_ABI_VERSION; its symbols have the version
 * node CAIRN_RAW. Products use cairn.h. Nothing is stored and no prompt format is applied.
 *
 * The conventions of cairn.h hold. A sequence keeps its model alive. Its functions may be called
 * from any thread; calls on one sequence wait for each other. */
#ifndef CAIRN_CAIRN_RAW_H_
#define CAIRN_CAIRN_RAW_H_

#include <cairn/cairn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_raw_sequence cairn_raw_sequence; /**< a live timeline of tokens */

/** An empty sequence of tokens. The caller owns *sequence. Any thread. Does not block. Codes: none.
 * Since 0.1. */
CAIRN_API cairn_code cairn_raw_sequence_create(const cairn_model* model,
                                               cairn_raw_sequence** sequence, cairn_error** error);

/** Computes `tokens` after those there are. Any thread. Blocks: until they are computed. Codes:
 * CONTEXT_FULL, and as with INVALID_ARGUMENT (an id out of range) nothing has changed; CANCELLED:
 * finished chunks stay, see cairn_raw_sequence_position. Since 0.1. */
CAIRN_API cairn_code cairn_raw_sequence_append(cairn_raw_sequence* sequence, const int32_t* tokens,
                                               size_t n_tokens, cairn_error** error);

/** Ends an append that runs in another thread, within one layer. Any thread. Does not block. NULL is
 * ignored. Since 0.1. */
CAIRN_API void cairn_raw_sequence_cancel(cairn_raw_sequence* sequence);

/** Tokens computed so far; 0 for NULL. Any thread. Blocks while an append runs. Since 0.1. */
CAIRN_API int64_t cairn_raw_sequence_position(const cairn_raw_sequence* sequence);

/** Copies the logits of the next token, as many as the model's vocab_size, to `logits`, which has
 * room for `n_logits` of them. Any thread. Blocks: while an append runs. Codes: NOT_FOUND (nothing was
 * computed, or the last append was cancelled); INVALID_ARGUMENT: too little room. Since 0.1. */
CAIRN_API cairn_code cairn_raw_sequence_logits(const cairn_raw_sequence* sequence, float* logits,
                                               size_t n_logits, cairn_error** error);

/** Ends an append that runs and frees the sequence. Any thread. Blocks: until its step has ended.
 * Since 0.1. */
CAIRN_API void cairn_raw_sequence_destroy(cairn_raw_sequence** sequence);

#ifdef __cplusplus
}
#endif

#endif /* CAIRN_CAIRN_RAW_H_ */
