/* As much JSON as the arguments of a tool call need. */
#ifndef CAIRN_EXAMPLES_JSON_MEMBER_H_
#define CAIRN_EXAMPLES_JSON_MEMBER_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copies the string member `key` of a JSON object to `value`, decoded and ended by a zero. Returns
 * 0, and "" in `value`, if there is no such member, it is no string, or it does not fit. */
int json_string_member(const char* json, const char* key, char* value, size_t value_size);

/* How many members a JSON object has; -1 if it is none. */
int json_n_members(const char* json);

#ifdef __cplusplus
}
#endif

#endif
