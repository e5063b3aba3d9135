// One token more for each of several sequences in one pass, and drafts after it that are to be
// verified: their rows share what is read of the weights. A sequence's result is the same as alone,
// bit for bit (DESIGN.md "Row invariance").
#ifndef CAIRN_ENGINE_DECODE_BATCH_H_
#define CAIRN_ENGINE_DECODE_BATCH_H_

#include <cstdint>
#include <span>

#include "cairn/message.h"
#include "cairn/status.h"
#include "engine/forward.h"

namespace cairn::engine {

class Sequence;

// Sequences of one call, at most.
inline constexpr std::int64_t kMaxDecodeRows = 16;

struct DecodeRow {
  Sequence* sequence = nullptr;  // each one once
  TokenId token = 0;
  StopRequested stop_requested;
  // Out: as Sequence::decode. kOutOfMemory, kInternal: the sequence is broken and must be dropped.
  Status status;
  // Tokens that may follow. Where there are any, the sequence waits for accept() after success.
  // Out: those that were verified; fewer where they do not pay, or the context, the window or
  // memory ends.
  std::span<const TokenId> drafts = {};
  // Of each draft: how likely it and all before it are right. Then as many are verified as pay
  // (choose_drafts); empty: all.
  std::span<const double> survival = {};
  double draft_ms = 0;  // what it took to find them
  // Out, of a pass that several rows can share: what it took; the same and the draft_ms of all its
  // rows; what it takes without any drafts. 0 = not known.
  double pass_ms = 0, round_ms = 0, plain_ms = 0;
};

// Decodes rows of sequences of one model. A pass stops in the middle only if all of its rows ask
// for it; otherwise it is completed for all. What fails for one row fails for no other. On the
// strand.
void decode_together(std::span<DecodeRow> rows);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_DECODE_BATCH_H_
