#include "export/schedule_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace rackrail::exporting {

namespace {

std::string file_name(const plan::TransferGraph& graph, std::size_t number) {
  std::string name = graph.name();
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '-');
  return fmt::format("{}-{}", name, number);
}

}  // namespace

std::vector<ExportedFile> schedule_files(
    const Subject& subject, std::string_view ending,
    const std::function<std::string(const plan::TransferGraph& graph, const std::string& name)>&
        text) {
  if (subject.plan == nullptr) {
    throw ConfigError(ErrorContext{"", "", "a cluster", "a plan, whose schedules are written"});
  }
  std::vector<ExportedFile> files;
  for (const plan::TransferGraph& graph : subject.plan->schedules) {
    const std::string name = file_name(graph, files.size());
    files.push_back({name + std::string(ending), text(graph, name)});
  }
  return files;
}

}  // namespace rackrail::exporting
