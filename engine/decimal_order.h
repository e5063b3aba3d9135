// Numbers by their spelling: automata that compare a decimal literal with a bound, exactly.
#ifndef CAIRN_ENGINE_DECIMAL_ORDER_H_
#define CAIRN_ENGINE_DECIMAL_ORDER_H_

#include <string>
#include <string_view>

#include "engine/byte_dfa.h"

namespace cairn::engine {

// A JSON number written out: no exponent, no superfluous zeros. Zero is "0", not negative.
struct Decimal {
  bool is_negative = false;
  std::string integer;   // digits; "0" below one
  std::string fraction;  // digits; empty for an integer

  bool is_integer() const { return fraction.empty(); }
  std::string text() const;
};

// kUnsupported: more than 400 digits when written out. `literal` is a JSON number.
Result<Decimal> parse_decimal(std::string_view literal);

enum class DecimalOrder { kAtLeast, kMoreThan, kAtMost, kLessThan };

// The texts -?d+(.d+)? that stand in this order to `bound`. A negative zero equals zero. Texts with
// superfluous leading zeros are not compared rightly: intersect with a grammar of numbers.
Result<SharedDfa> decimals_in_order(DecimalOrder order, const Decimal& bound);

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_DECIMAL_ORDER_H_
