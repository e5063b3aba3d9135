// The dimensions of the released model, for measuring without its files.
#ifndef CAIRN_ENGINE_RELEASED_SHAPE_H_
#define CAIRN_ENGINE_RELEASED_SHAPE_H_

#include <string_view>

namespace cairn::engine {

// What its config.json says of the text model.
std::string_view released_config_json();

}  // namespace cairn::engine

#endif  // CAIRN_ENGINE_RELEASED_SHAPE_H_
