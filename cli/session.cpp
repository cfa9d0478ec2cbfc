#include "cli/session.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/build_config.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "cli/interrupt.hpp"

namespace rackrail::cli {

void Session::add_input(const std::filesystem::path& path) {
  inputs_[path.string()] = sha256_hex(read_file(path));
}

void Session::add_inputs(std::span<const std::filesystem::path> paths) {
  for (const auto& path : paths) {
    add_input(path);
  }
}

void Session::add_output(const std::filesystem::path& path) {
  if (path.empty()) {
    return;
  }
  for (const auto& [input, digest] : inputs_) {
    std::error_code absent;  // then it is another file
    if (std::filesystem::equivalent(path, input, absent)) {
      throw ConfigError(ErrorContext{path.string(), "",
                                     "an output that is an input of this command",
                                     "another file to write to"});
    }
  }
  std::error_code unknown;  // a place that cannot be looked at is refused when it is written to
  const bool is_device =
      std::filesystem::is_other(path, unknown) || std::filesystem::is_character_file(path, unknown);
  const bool is_new =
      outputs_.insert(std::filesystem::weakly_canonical(std::filesystem::absolute(path), unknown))
          .second;
  if (!is_new && !is_device && !unknown) {
    throw ConfigError(ErrorContext{path.string(), "", "two outputs of this command",
                                   "another file for one of them"});
  }
}

nlohmann::json Session::envelope() const {
  return {{"rackrail", build_config::kVersion},
          {"command", command},
          {"seed", seed},
          {"inputs", inputs_}};
}

void Session::print_json(const nlohmann::json& result) const {
  nlohmann::json whole = envelope();
  whole.update(result);
  fmt::print("{}\n", whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

void Session::note(const std::string& line) const {
  if (!json) {
    fmt::print(stderr, "{}\n", line);
  }
}

int report_error(const std::exception& error, bool json) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const bool is_interrupted = dynamic_cast<const NothingFound*>(&error) != nullptr;
  const bool is_bad_input = ours != nullptr && ours->is_bad_input();
  const int status = is_interrupted ? kInterrupted : is_bad_input ? kBadInput : kNotMet;
  if (json) {
    const ErrorContext context = ours != nullptr ? ours->context() : ErrorContext{};
    const nlohmann::json object = {
        {"error",
         {{"file", context.file},
          {"where", context.where},
          {"found", context.found.empty() ? error.what() : context.found},
          {"expected", context.expected},
          {"message", error.what()}}}};
    fmt::print(stderr, "{}\n",
               object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print(stderr, "rackrail: {}\n", error.what());
  }
  return status;
}

}  // namespace rackrail::cli
