#include "explore/rows.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"

namespace rackrail::explore {
namespace {

using Json = nlohmann::ordered_json;

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return quoted + "\"";
}

Figures read_figures(const Json& json) {
  Figures figures;
  figures.step_time_s = json.at("step_time_s").get<double>();
  figures.bound_s = json.at("bound_s").get<double>();
  figures.gap = json.at("gap").get<double>();
  figures.sync_share = json.at("sync_share").get<double>();
  figures.throughput = json.at("throughput").get<double>();
  figures.goodput = json.at("goodput").get<double>();
  figures.global_batch = json.at("global_batch").get<std::int64_t>();
  figures.executions = json.at("executions").get<std::int64_t>();
  figures.executions_equal = json.at("executions_equal").get<bool>();
  return figures;
}

}  // namespace

std::string to_line(const Row& row) {
  Json json = {{"cell", row.cell}, {"digest", row.digest}, {"varied", Json::object()}};
  for (const auto& [path, value] : row.varied) {
    json["varied"][path] = value;
  }
  if (row.figures) {
    const Figures& figures = *row.figures;
    json["step_time_s"] = figures.step_time_s;
    json["bound_s"] = figures.bound_s;
    json["gap"] = figures.gap;
    json["sync_share"] = figures.sync_share;
    json["throughput"] = figures.throughput;
    json["goodput"] = figures.goodput;
    json["global_batch"] = figures.global_batch;
    json["executions"] = figures.executions;
    json["executions_equal"] = figures.executions_equal;
  } else {
    json["error"] = row.error;
  }
  json["seconds"] = row.seconds;
  // What is no UTF-8 (a path in a message) must not end the sweep.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Row> parse_line(const std::string& line) {
  try {
    const Json json = Json::parse(line);
    Row row;
    row.cell = json.at("cell").get<std::size_t>();
    row.digest = json.at("digest").get<std::string>();
    for (const auto& [path, value] : json.at("varied").items()) {
      row.varied.emplace_back(path, value.get<std::string>());
    }
    if (json.contains("error")) {
      row.error = json.at("error").get<std::string>();
    } else {
      row.figures = read_figures(json);
    }
    row.seconds = json.at("seconds").get<double>();
    return row;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string to_csv(std::span<const Row> rows) {
  std::string text = "cell";
  if (!rows.empty()) {
    for (const auto& [path, value] : rows.front().varied) {
      text += "," + csv_cell(path);
    }
  }
  text += ",step_time_s,bound_s,gap,sync_share,throughput,goodput,global_batch,executions,error\n";
  for (const Row& row : rows) {
    text += std::to_string(row.cell);
    for (const auto& [path, value] : row.varied) {
      text += "," + csv_cell(value);
    }
    if (row.figures) {
      const Figures& f = *row.figures;
      text += fmt::format(",{},{},{},{},{},{},{},{},\n", f.step_time_s, f.bound_s, f.gap,
                          f.sync_share, f.throughput, f.goodput, f.global_batch, f.executions);
    } else {
      text += fmt::format(",,,,,,,,,{}\n", csv_cell(row.error));
    }
  }
  return text;
}

RowFile read_rows(const std::filesystem::path& path) {
  RowFile file;
  std::error_code status;
  if (!std::filesystem::exists(path, status)) {
    return file;
  }
  const std::string content = read_file(path);
  std::size_t number = 1;
  for (std::size_t at = 0; at < content.size(); ++number) {
    const std::size_t end = content.find('\n', at);
    const std::string line = content.substr(at, end - at);
    std::optional<Row> row = parse_line(line);
    if (row && end != std::string::npos) {
      file.rows.push_back(std::move(*row));
    } else if (end == std::string::npos) {
      // Even where it can be read: a number may have lost its last digits.
      file.is_damaged = true;
      break;
    } else if (!line.empty()) {
      throw ConfigError(ErrorContext{path.string(), fmt::format("line {}", number),
                                     fmt::format("'{:.60}'", line),
                                     "a result of a sweep, or another file"});
    }
    at = end + 1;
  }
  return file;
}

void write_rows(const std::filesystem::path& path, std::span<const Row> rows) {
  std::string content;
  for (const Row& row : rows) {
    content += to_line(row) + "\n";
  }
  write_file_atomically(path, content);
}

}  // namespace rackrail::explore
