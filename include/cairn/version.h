// Version numbers, at compile time and at run time.
#ifndef CAIRN_VERSION_H_
#define CAIRN_VERSION_H_

#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1
#define CAIRN_VERSION_PATCH 0

namespace cairn {

// "0.1.0", of the library that is running.
const char* version();

}  // namespace cairn

#endif  // CAIRN_VERSION_H_
