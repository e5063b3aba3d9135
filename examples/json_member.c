#include "json_member.h"

#include <stdlib.h>
#include <string.h>

static const char* skip_space(const char* at) { return at + strspn(at, " \t\r\n"); }

/* Writes the code point as UTF-8 and returns its length. */
static size_t encode_utf8(unsigned code_point, char* out) {
  if (code_point < 0x80) {
    out[0] = (char)code_point;
    return 1;
  }
  if (code_point < 0x800) {
    out[0] = (char)(0xC0 | code_point >> 6);
    out[1] = (char)(0x80 | (code_point & 0x3F));
    return 2;
  }
  if (code_point < 0x10000) {
    out[0] = (char)(0xE0 | code_point >> 12);
    out[1] = (char)(0x80 | (code_point >> 6 & 0x3F));
    out[2] = (char)(0x80 | (code_point & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | code_point >> 18);
  out[1] = (char)(0x80 | (code_point >> 12 & 0x3F));
  out[2] = (char)(0x80 | (code_point >> 6 & 0x3F));
  out[3] = (char)(0x80 | (code_point & 0x3F));
  return 4;
}

/* The four hexadecimal digits at `at`; 0, which no escape may stand for, if there are none. */
static unsigned hex_digits(const char* at) {
  if (strspn(at, "0123456789abcdefABCDEF") < 4) return 0;
  const char digits[5] = {at[0], at[1], at[2], at[3], '\0'};
  return (unsigned)strtoul(digits, NULL, 16);
}

/* Decodes one escape after the backslash at `at`; returns what follows it, NULL if it is bad. */
static const char* decode_escape(const char* at, char* out, size_t* length) {
  static const char kFrom[] = "\"\\/bfnrt", kTo[] = "\"\\/\b\f\n\r\t";
  const char* found = *at == '\0' ? NULL : strchr(kFrom, *at);
  *length = 1;
  if (found != NULL) {
    *out = kTo[found - kFrom];
    return at + 1;
  }
  unsigned code_point = *at == 'u' ? hex_digits(at + 1) : 0;
  if (code_point == 0) return NULL;
  at += 5;
  if (code_point >= 0xD800 && code_point < 0xDC00) { /* half of a pair */
    const unsigned low = at[0] == '\\' && at[1] == 'u' ? hex_digits(at + 2) : 0;
    if (low < 0xDC00 || low > 0xDFFF) return NULL;
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    at += 6;
  } else if (code_point >= 0xDC00 && code_point < 0xE000) {
    return NULL;
  }
  *length = encode_utf8(code_point, out);
  return at;
}

/* Decodes the string that starts at `at`; returns what follows it, NULL if it is bad or too long.
 */
static const char* decode_string(const char* at, char* out, size_t out_size) {
  size_t used = 0;
  if (*at != '"') return NULL;
  for (++at; *at != '"';) {
    char decoded[4] = {*at, 0, 0, 0};
    size_t length = 1;
    if (*at == '\0') return NULL;
    at = *at == '\\' ? decode_escape(at + 1, decoded, &length) : at + 1;
    if (at == NULL || used + length >= out_size) return NULL;
    memcpy(out + used, decoded, length);
    used += length;
  }
  out[used] = '\0';
  return at + 1;
}

/* The end of the value at `at`, whatever it is; NULL if the text ends inside it. */
static const char* skip_value(const char* at) {
  int depth = 0, in_string = 0;
  for (; *at != '\0'; ++at) {
    if (in_string) {
      if (*at == '\\' && at[1] != '\0')
        ++at;
      else if (*at == '"')
        in_string = 0;
    } else if (depth == 0 && (*at == ',' || *at == '}')) {
      return at;
    } else if (*at == '"') {
      in_string = 1;
    } else if (*at == '{' || *at == '[') {
      ++depth;
    } else if (*at == '}' || *at == ']') {
      --depth;
    }
  }
  return NULL;
}

/* The value of the member whose name begins at `at`, and the name; NULL if it is no member. */
static const char* value_of_member(const char* at, char* name, size_t name_size) {
  at = decode_string(skip_space(at), name, name_size);
  if (at == NULL || *(at = skip_space(at)) != ':') return NULL;
  return skip_space(at + 1);
}

int json_string_member(const char* json, const char* key, char* value, size_t value_size) {
  char name[256];
  value[0] = '\0';
  const char* at = skip_space(json);
  if (*at != '{') return 0;
  do {
    at = value_of_member(at + 1, name, sizeof name);
    if (at == NULL) return 0;
    if (strcmp(name, key) == 0) {
      if (decode_string(at, value, value_size) != NULL) return 1;
      value[0] = '\0';
      return 0;
    }
    at = skip_value(at);
  } while (at != NULL && *at == ',');
  return 0;
}

int json_n_members(const char* json) {
  char name[256];
  int n_members = 0;
  const char* at = skip_space(json);
  if (*at != '{') return -1;
  if (*skip_space(at + 1) == '}') return 0;
  do {
    at = value_of_member(at + 1, name, sizeof name);
    if (at != NULL) at = skip_value(at);
    ++n_members;
  } while (at != NULL && *at == ',');
  return at != NULL ? n_members : -1;
}
