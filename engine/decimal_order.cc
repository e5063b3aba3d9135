// A literal is compared while it is read: the integer part by its number of digits, then by the
// first digit that differs; the fraction by the first that differs. What is remembered is small:
// how many digits were read (as far as the bound has some) and how they compare.
#include "engine/decimal_order.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace cairn::engine {
namespace {

constexpr int kMaxDigits = 400;

// The parts of a state's key.
enum Part : std::size_t { kPhase, kNegative, kNonZero, kPosition, kCompared, kParts };
enum Phase : std::uint32_t { kBegin, kAfterSign, kInteger, kPoint, kFraction };
// How the magnitude read so far compares with the bound's.
enum Compared : std::uint32_t { kLess, kEqual, kGreater };

Compared compared(char digit, char with) {
  return digit < with ? kLess : digit > with ? kGreater : kEqual;
}

class Comparison {
 public:
  explicit Comparison(const Decimal& bound) : bound_(bound) {}

  std::optional<DfaBuilder::Key> next(DfaBuilder::Key key, std::uint8_t byte) const {
    const char c = static_cast<char>(byte);
    if (c == '-' && key[kPhase] == kBegin) {
      key[kPhase] = kAfterSign;
      key[kNegative] = 1;
      return key;
    }
    if (c == '.' && key[kPhase] == kInteger) {
      key[kCompared] = integer_compared(key);
      key[kPhase] = kPoint;
      key[kPosition] = 0;
      return key;
    }
    if (c < '0' || c > '9') return std::nullopt;
    const bool in_fraction = key[kPhase] == kPoint || key[kPhase] == kFraction;
    key[kPhase] = in_fraction ? kFraction : kInteger;
    key[kNonZero] |= c != '0';
    const std::string& digits = in_fraction ? bound_.fraction : bound_.integer;
    const std::uint32_t position = key[kPosition];
    if (position < digits.size()) {
      if (key[kCompared] == kEqual) key[kCompared] = compared(c, digits[position]);
      ++key[kPosition];
    } else if (in_fraction) {
      if (key[kCompared] == kEqual) key[kCompared] = compared(c, '0');
    } else {
      key[kPosition] = static_cast<std::uint32_t>(digits.size()) + 1;  // longer than the bound
    }
    return key;
  }

  bool is_number(const DfaBuilder::Key& key) const {
    return key[kPhase] == kInteger || key[kPhase] == kFraction;
  }

  // The number that ends here against the bound.
  Compared order(const DfaBuilder::Key& key) const {
    if (key[kNonZero] == 0) {
      const bool bound_is_zero = bound_.integer == "0" && bound_.fraction.empty();
      return bound_is_zero ? kEqual : bound_.is_negative ? kGreater : kLess;
    }
    const bool is_negative = key[kNegative] != 0;
    if (is_negative != bound_.is_negative) return is_negative ? kLess : kGreater;
    const Compared magnitude = magnitude_compared(key);
    if (!is_negative || magnitude == kEqual) return magnitude;
    return magnitude == kLess ? kGreater : kLess;
  }

 private:
  Compared integer_compared(const DfaBuilder::Key& key) const {
    if (key[kPosition] < bound_.integer.size()) return kLess;
    if (key[kPosition] > bound_.integer.size()) return kGreater;
    return static_cast<Compared>(key[kCompared]);
  }

  Compared magnitude_compared(const DfaBuilder::Key& key) const {
    const bool in_fraction = key[kPhase] == kFraction;
    const Compared so_far =
        in_fraction ? static_cast<Compared>(key[kCompared]) : integer_compared(key);
    const std::size_t n_read = in_fraction ? key[kPosition] : 0;
    // The bound's last digit is no zero.
    return so_far == kEqual && n_read < bound_.fraction.size() ? kLess : so_far;
  }

  const Decimal& bound_;
};

bool holds(DecimalOrder order, Compared compared) {
  switch (order) {
    case DecimalOrder::kAtLeast:
      return compared != kLess;
    case DecimalOrder::kMoreThan:
      return compared == kGreater;
    case DecimalOrder::kAtMost:
      return compared != kGreater;
    case DecimalOrder::kLessThan:
      return compared == kLess;
  }
  return false;
}

}  // namespace

std::string Decimal::text() const {
  return (is_negative ? "-" : "") + integer + (fraction.empty() ? "" : "." + fraction);
}

Result<Decimal> parse_decimal(std::string_view literal) {
  const auto too_long = [&] {
    return Status(StatusCode::kUnsupported, "number " + std::string(literal.substr(0, 40)) +
                                                " has too many digits when written out");
  };
  Decimal out;
  std::string_view rest = literal;
  if (rest.starts_with('-')) {
    out.is_negative = true;
    rest.remove_prefix(1);
  }
  const std::size_t e = std::min(rest.find_first_of("eE"), rest.size());
  long exponent = 0;
  if (e < rest.size()) {
    std::string_view digits = rest.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (read.ec != std::errc() || std::labs(exponent) > kMaxDigits) return too_long();
  }
  const std::string_view mantissa = rest.substr(0, e);
  const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  long n_integer = static_cast<long>(point) + exponent;
  if (n_integer < 0) {
    digits.insert(0, static_cast<std::size_t>(-n_integer), '0');
    n_integer = 0;
  }
  const auto n = static_cast<std::size_t>(n_integer);
  if (n > digits.size()) digits.append(n - digits.size(), '0');
  if (digits.size() > kMaxDigits) return too_long();

  out.integer = digits.substr(0, n);
  out.fraction = digits.substr(n);
  out.integer.erase(0, std::min(out.integer.find_first_not_of('0'), out.integer.size()));
  if (out.integer.empty()) out.integer = "0";
  out.fraction.erase(out.fraction.find_last_not_of('0') + 1);
  if (out.integer == "0" && out.fraction.empty()) out.is_negative = false;
  return out;
}

Result<SharedDfa> decimals_in_order(DecimalOrder order, const Decimal& bound) {
  std::array<bool, 256> begins{};
  for (const char c : std::string_view("-./0123456789:")) {  // '/' and ':' end what is before them
    begins[static_cast<std::uint8_t>(c)] = true;
  }
  const Comparison comparison(bound);
  DfaBuilder::Key start(kParts);
  start[kPhase] = kBegin;
  start[kCompared] = kEqual;
  return DfaBuilder(classes_from_borders(begins))
      .build(
          start,
          [&](const DfaBuilder::Key& key, std::uint8_t byte) { return comparison.next(key, byte); },
          [&](const DfaBuilder::Key& key) {
            return comparison.is_number(key) && holds(order, comparison.order(key));
          });
}

}  // namespace cairn::engine
