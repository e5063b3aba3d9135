// Reading a text along an OutputGrammar, byte by byte. What may come next can depend on how what
// came before is read, so all readings are followed at once; each has a stack of what it is in the
// middle of. A reading that exists can always be finished.
#ifndef CAIRN_ENGINE_GRAMMAR_RUN_H_
#define CAIRN_ENGINE_GRAMMAR_RUN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/output_grammar.h"

namespace cairn::engine {

inline constexpr std::uint32_t kNoFrame = 0xFFFFFFFF;

// A node that is being read.
struct Frame {
  NodeId node = kNoNode;
  std::uint32_t state = 0;         // by kind of node, see grammar_run.cc
  std::uint32_t count = 0;         // items, characters or bytes so far; only as far as it matters
  std::uint32_t name = 0;          // node of the tree of names, in a name
  std::uint32_t space = 0;         // white space just read
  std::uint32_t unlisted = 0;      // in a name and at its value: which of ObjectNode::unlisted
  std::uint32_t n_properties = 0;  // names that have ended, where the object counts them
  std::uint32_t extra = kNoFrame;  // newest name that is not listed, in GrammarRun::names_
  std::uint64_t extras = 0;        // sum over those names
  std::uint64_t hash = 0;          // of the name so far
  PropertySet seen;

  bool operator==(const Frame&) const = default;
};

struct Reading {
  Frame top;
  std::uint32_t below = kNoFrame;  // in GrammarRun::frames_

  bool operator==(const Reading&) const = default;
};

struct Readings {
  // More are not followed: of an ambiguous text the readings of earlier alternatives stay.
  static constexpr std::size_t kMax = 1024;

  std::vector<Reading> open;
  bool ended = false;  // the whole text may end here

  bool none() const { return open.empty() && !ended; }
  void clear() {
    open.clear();
    ended = false;
  }
};

// Holds the stacks. Copyable, so a copy and the original may go on in different ways; readings
// belong to the run that made them and to its copies. The grammar must outlive it.
class GrammarRun {
 public:
  explicit GrammarRun(const OutputGrammar& grammar) : grammar_(&grammar) {}

  const OutputGrammar& grammar() const { return *grammar_; }
  // Replaces `out` by the readings before the first byte of a text of `root`.
  void begin(NodeId root, Readings& out);
  // Replaces `out` (not `from`) by the readings after one more byte.
  void step(const Readings& from, std::uint8_t byte, Readings& out);
  // The readings of one after the node on top of it has ended. For scalars; see token_mask.cc.
  void end_top(const Reading& reading, Readings& out);

  // What steps have added since a mark can be forgotten, if no reading that is kept uses it.
  struct Mark {
    std::size_t n_frames = 0, n_names = 0;
  };
  Mark mark() const { return {frames_.size(), names_.size()}; }
  void forget_since(Mark mark) {
    frames_.resize(mark.n_frames);
    names_.resize(mark.n_names);
  }
  // Forgets all that `readings` do not use.
  void compact(Readings& readings);
  std::size_t n_frames() const { return frames_.size(); }

  // Appends bytes that describe all that `reading` makes of the next `n_ahead` bytes: equal
  // descriptions, equal futures.
  void describe(const Reading& reading, std::uint32_t n_ahead, std::string& out) const;

  // The scalar that the top of a reading is inside of (between the quotes, if it has some), or
  // null.
  const ScalarNode* scalar(const Reading& reading) const;
  // The automaton of names, if the top of a reading is inside a name that may still become one that
  // is not listed; otherwise null. Its state is the frame's `count`.
  const SharedDfa* free_name(const Reading& reading) const;

 private:
  struct Stacked {
    Frame frame;
    std::uint32_t below;
    std::uint32_t depth;  // arrays and objects up to this one
  };
  struct UnlistedName {
    std::uint64_t hash;
    std::uint32_t before;
  };

  std::uint32_t depth(std::uint32_t frame) const {
    return frame == kNoFrame ? 0 : frames_[frame].depth;
  }
  // Whether a text of the node fits inside what is open up to `below`.
  bool fits(NodeId node, std::uint32_t below) const;
  bool may_come(const ObjectNode& object, const Frame& frame, std::uint32_t property,
                std::uint32_t below) const;
  // Whether a name of ObjectNode::unlisted[i], or of any, may begin.
  bool unlisted_may_come(const ObjectNode& object, const Frame& frame, std::size_t i,
                         std::uint32_t below) const;
  bool any_unlisted_may_come(const ObjectNode& object, const Frame& frame,
                             std::uint32_t below) const;
  // Whether the name in the frame leads to one that was not used.
  bool leads_to_unused(const ObjectNode::Unlisted& unlisted, const Frame& frame) const;
  bool name_may_come(const ObjectNode& object, const Frame& frame, std::uint32_t below) const;
  // Whether there is room for one more property that is not required.
  static bool has_room(const ObjectNode& object, const Frame& frame);
  static bool may_end(const ObjectNode& object, const Frame& frame);
  static bool may_end_name(const ObjectNode& object, const Frame& frame);
  bool any_name_may_come(const ObjectNode& object, const Frame& frame, NameTrie::Range range,
                         std::uint32_t below) const;
  bool has_name(const Frame& frame, std::uint64_t hash) const;

  std::uint32_t push(const Reading& reading);
  static void add(const Reading& reading, Readings& out);
  void enter(NodeId node, std::uint32_t below, Readings& out);
  void leave(std::uint32_t below, Readings& out);
  // Enters a value below `parent` and reads its first byte.
  void step_into(NodeId value, const Reading& parent, std::uint8_t byte, Readings& out);

  void step_reading(const Reading& reading, std::uint8_t byte, Readings& out);
  void step_literal(const LiteralNode& literal, Reading reading, std::uint8_t byte, Readings& out);
  void step_scalar(const ScalarNode& scalar, Reading reading, std::uint8_t byte, Readings& out);
  void step_array(const ArrayNode& array, Reading reading, std::uint8_t byte, Readings& out);
  void step_object(const ObjectNode& object, Reading reading, std::uint8_t byte, Readings& out);
  void step_parameters(const ObjectNode& object, Reading reading, std::uint8_t byte, Readings& out);
  // A reading before the first byte of a name, for the listed names and each kind of unlisted ones.
  void begin_name(const ObjectNode& object, Reading reading, Readings& out);
  // One byte of a name that goes on; false: no name begins so.
  bool step_name(const ObjectNode& object, Reading& reading, std::uint8_t byte) const;
  // The name has ended: marks it as seen and gives its values; null if it may not end here.
  const ObjectNode::Value* end_name(const ObjectNode& object, Reading& reading);
  void add_scalar(const ScalarNode& scalar, const Reading& reading, Readings& out);
  void add_tags(const ObjectNode& object, Reading reading, bool is_first, Readings& out);
  const std::string& tag(std::uint32_t state) const;

  const OutputGrammar* grammar_;
  std::vector<Stacked> frames_;
  std::vector<UnlistedName> names_;
};

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_GRAMMAR_RUN_H_
