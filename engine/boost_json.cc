// The one translation unit that holds Boost.JSON's implementation.
#include <boost/json/src.hpp>
