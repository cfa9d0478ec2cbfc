// A file for each schedule of a plan.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "export/exporter.hpp"

namespace rackrail::exporting {

/// `text` of a schedule takes the name of its file without the ending: "ring-0", of letters, digits
/// and dashes, another for each. Throws ConfigError for a cluster alone.
std::vector<ExportedFile> schedule_files(
    const Subject& subject, std::string_view ending,
    const std::function<std::string(const plan::TransferGraph& graph, const std::string& name)>&
        text);

}  // namespace rackrail::exporting
