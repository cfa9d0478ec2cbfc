// The factories of the readers, one per format, and what they share.
#pragma once

#include <memory>
#include <string_view>

#include "topology/reader.hpp"

namespace rackrail {
class ConfigValue;
}  // namespace rackrail

namespace rackrail::topology {

#define RACKRAIL_REGISTER(format) std::unique_ptr<Reader> make_##format##_reader();
#include "topology/readers/formats.def"
#undef RACKRAIL_REGISTER

/// The flat form (`nodes` and `links`) of the YAML reader.
Topology read_flat_yaml(const ConfigValue& root);

/// Throws ConfigError when there is an overlay, for formats that say all themselves.
void refuse_overlay(const std::filesystem::path& path, const ReadOptions& options);

/// Whether `back` is `link` with its ends exchanged: together they are one duplex link.
bool is_reverse_of(const Link& back, const Link& link);

}  // namespace rackrail::topology
