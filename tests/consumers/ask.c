/* What the consumer projects build: enough calls to need the library, run without a model. */
#include <cairn/cairn.h>
#include <stdio.h>

int main(void) {
  cairn_runtime* runtime = NULL;
  cairn_error* error = NULL;
  const cairn_code code = cairn_runtime_create(NULL, &runtime, &error);
  printf("cairn %s: %s\n", cairn_version(), cairn_code_name(code));
  cairn_error_destroy(&error);
  cairn_runtime_destroy(&runtime);
  return code == CAIRN_OK ? 0 : 1;
}
