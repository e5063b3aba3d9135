#include "engine/schema_formats.h"

namespace cairn::engine {
namespace {

// RFC 3339. A leap second is not offered.
constexpr std::string_view kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 3339 appendix A, numbers of at most nine digits.
constexpr std::string_view kDuration =
    "P(?:(?:NY(?:NM(?:ND)?)?|NM(?:ND)?|ND)(?:T(?:NH(?:NM(?:NS)?)?|NM(?:NS)?|NS))?"
    "|T(?:NH(?:NM(?:NS)?)?|NM(?:NS)?|NS)|NW)";
// RFC 4122.
constexpr std::string_view kUuid =
    "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
// RFC 2673 section 3.2.
constexpr std::string_view kIpv4 =
    "(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\\.){3}"
    "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
// RFC 1123: labels of at most 63 characters, at most four of them.
constexpr std::string_view kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,60}[a-zA-Z0-9])?";
// RFC 5321 without quoted local parts and address literals.
constexpr std::string_view kAtoms = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+";
// RFC 6901.
constexpr std::string_view kJsonPointer = "(?:/(?:[^~/]|~0|~1)*)*";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string hostname() { return std::string(kLabel) + "(?:\\." + std::string(kLabel) + "){0,3}"; }

std::string email() {
  const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?", atoms(kAtoms);
  return atoms + "(?:\\." + atoms + ")*@(?:" + label + "\\.)+" + label;
}

// RFC 4291: up to eight groups, one run of them left out, an IPv4 address at the end.
std::string ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}", v4(kIpv4);
  const auto groups = [&](int n) { return "(?:" + group + ":){" + std::to_string(n) + "}"; };
  std::string out =
      groups(7) + "(?:" + group + "|:)|" + groups(6) + "(?:" + v4 + "|:" + group + "|:)";
  for (int n = 5; n >= 0; --n) {
    const std::string most = std::to_string(5 - n), all = std::to_string(7 - n);
    const std::string before = n == 0 ? ":" : groups(n);
    out += "|" + before + "(?:(?::" + group + "){0," + most + "}:" + v4 + "|(?::" + group + "){1," +
           all + "}|:)";
  }
  return out;
}

// RFC 3986: an absolute URI; hosts are names.
std::string uri() {
  const std::string sub = "[a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2}";
  const std::string name = "(?:" + sub + ")*", user = "(?:" + sub + "|:)*@";
  const std::string pchar = "(?:" + sub + "|[:@])", query = "(?:" + sub + "|[:@/?])*";
  return "[a-zA-Z][a-zA-Z0-9+.-]*:(?://(?:" + user + ")?" + name + "(?::[0-9]*)?(?:/" + pchar +
         "*)*|/(?:" + pchar + "+(?:/" + pchar + "*)*)?|" + pchar + "+(?:/" + pchar + "*)*)(?:\\?" +
         query + ")?(?:#" + query + ")?";
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view format) {
  std::string text;
  if (format == "date") {
    text = kDate;
  } else if (format == "time") {
    text = kTime;
  } else if (format == "date-time") {
    text = std::string(kDate) + "T" + std::string(kTime);
  } else if (format == "duration") {
    text = replaced(std::string(kDuration), "N", "[0-9]{1,9}");
  } else if (format == "uuid") {
    text = kUuid;
  } else if (format == "ipv4") {
    text = kIpv4;
  } else if (format == "ipv6") {
    text = ipv6();
  } else if (format == "hostname") {
    text = hostname();
  } else if (format == "email") {
    text = email();
  } else if (format == "uri") {
    text = uri();
  } else if (format == "json-pointer") {
    text = kJsonPointer;
  } else {
    return std::nullopt;
  }
  return "^(?:" + text + ")$";
}

}  // namespace cairn::engine
