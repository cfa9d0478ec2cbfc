// The list of exporters. A new kind is one more line in exports.def.
#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "export/exporter.hpp"

namespace rackrail::exporting {

#define RACKRAIL_REGISTER(kind) std::unique_ptr<Exporter> make_##kind##_exporter();
#include "export/exports.def"
#undef RACKRAIL_REGISTER

std::span<const std::unique_ptr<Exporter>> exporters() {
  static const std::array kAll = {
#define RACKRAIL_REGISTER(kind) make_##kind##_exporter(),
#include "export/exports.def"
#undef RACKRAIL_REGISTER
  };
  return kAll;
}

const Exporter& exporter_of(std::string_view kind) {
  std::string known;
  for (const std::unique_ptr<Exporter>& one : exporters()) {
    if (one->kind() == kind) {
      return *one;
    }
    known += (known.empty() ? "" : ", ") + std::string(one->kind());
  }
  throw ConfigError(ErrorContext{"<command line>", "--to", fmt::format("'{}'", kind), known});
}

}  // namespace rackrail::exporting
