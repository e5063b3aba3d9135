// The same over the C++ API, for the project that builds Cairn with itself.
#include <cairn/engine.h>
#include <cairn/version.h>

#include <iostream>

int main() {
  const cairn::Result<cairn::Runtime> runtime = cairn::Runtime::create();
  std::cout << "cairn " << cairn::version() << ": " << runtime.status().to_string() << "\n";
  return runtime.ok() ? 0 : 1;
}
