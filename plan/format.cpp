#include "plan/format.hpp"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/json_layout.hpp"
#include "plan/plan.pb.h"
#include "plan/plan_message.hpp"
#include "plan/verifier.hpp"

namespace rackrail::plan {
namespace {

[[noreturn]] void fail(const std::string& file, std::string where, std::string found,
                       std::string expected) {
  throw PlanError(ErrorContext{.file = file,
                               .where = std::move(where),
                               .found = std::move(found),
                               .expected = std::move(expected)});
}

std::string serialized(const v1::Plan& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

/// The checksum field that ends a binary plan whose other bytes are `body`.
std::string checksum_field(std::string_view body) {
  const std::string digest = sha256_hex(body);
  std::uint64_t checksum = 0;
  std::from_chars(digest.data(), digest.data() + 16, checksum, 16);
  v1::Plan message;
  message.set_checksum(checksum);
  return serialized(message);
}

void check_version(const v1::Plan& message, const std::string& file) {
  if (message.version() > kPlanFormatVersion) {
    fail(file, "version", fmt::format("{}", message.version()),
         fmt::format("at most {}, the newest that this program knows", kPlanFormatVersion));
  }
  if (message.version() < 1) {
    fail(file, "version", "none", fmt::format("1 to {}: is this a plan?", kPlanFormatVersion));
  }
}

/// "line 3, column 7" of a byte of the content.
std::string place_of(std::string_view content, std::size_t byte) {
  const std::string_view before = content.substr(0, byte);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t last = before.rfind('\n');
  return fmt::format("line {}, column {}", line,
                     before.size() - (last == std::string_view::npos ? 0 : last + 1) + 1);
}

/// Whether it begins as text does, which the binary form of a plan never does for long.
bool is_text(std::string_view content) {
  constexpr std::size_t kLooked = 256;
  return std::ranges::all_of(content.substr(0, kLooked), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= ' ' || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

v1::Plan parse_binary(std::string_view content, const std::string& file) {
  if (!content.empty() && is_text(content)) {
    fail(file, place_of(content, 0), "text that is no JSON object",
         "a plan as JSON or in binary form");
  }
  // First the checksum: protobuf prints complaints about some kinds of damage.
  const std::size_t tail = std::min(checksum_field({}).size(), content.size());
  const std::string_view body = content.substr(0, content.size() - tail);
  if (content.substr(body.size()) != checksum_field(body)) {
    fail(file, fmt::format("byte {}", content.size()), "a wrong checksum, or none",
         "a whole plan: the file was cut short or damaged, or is none");
  }
  v1::Plan message;
  const bool parsed = content.size() <= std::numeric_limits<int>::max() &&
                      message.ParseFromArray(content.data(), static_cast<int>(content.size()));
  if (!parsed) {
    fail(file, {}, "no message of plan.proto", "a plan as JSON or in binary form");
  }
  check_version(message, file);
  return message;
}

/// Keeps nothing; refuses what protobuf would read as something else: null as a value that is not
/// there, a list in a list as one list, and of two values of one name the last.
class PlanSyntax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit PlanSyntax(const std::string& file) : file_(file) {}
  /// Of what is no JSON.
  std::optional<std::size_t> wrong_byte() const { return wrong_byte_; }

  bool null() override { refuse("null", "a value"); }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override {
    open_.push_back({.is_list = false, .keys = {}});
    return true;
  }
  bool key(std::string& name) override {
    key_ = name;
    // No object of a plan has so many: one that does is refused by what is said of its names.
    constexpr std::size_t kMostKeys = 1000;
    if (open_.back().keys.size() < kMostKeys && !open_.back().keys.insert(name).second) {
      refuse("two values", "one");
    }
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override {
    if (!open_.empty() && open_.back().is_list) {
      refuse("a list in a list", "a list of values");
    }
    open_.push_back({.is_list = true, .keys = {}});
    return true;
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    const auto* syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    wrong_byte_ = syntax == nullptr ? 0 : std::max<std::size_t>(position, 1) - 1;
    return false;
  }

 private:
  struct Open {
    bool is_list = false;
    std::set<std::string, std::less<>> keys;
  };

  [[noreturn]] void refuse(const char* found, const char* expected) const {
    fail(file_, key_, found, expected);
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  std::vector<Open> open_;
  std::string key_;
  std::optional<std::size_t> wrong_byte_;
};

/// Throws unless the content is JSON; says where it stops being so, which protobuf does not.
void check_syntax(std::string_view content, const std::string& file) {
  PlanSyntax syntax(file);
  if (nlohmann::json::sax_parse(content.begin(), content.end(), &syntax)) {
    return;
  }
  const std::size_t byte = syntax.wrong_byte().value_or(0);
  fail(file, place_of(content, byte),
       byte >= content.size() ? "the end of the file" : "what is not JSON there",
       "a whole JSON document");
}

/// What protobuf says about JSON that does not fit, "(path) field: complaint" or "(path):
/// complaint", in the parts of our messages and on one line.
ErrorContext json_complaint(const google::protobuf::util::Status& status, const std::string& file) {
  constexpr std::string_view kUnknownField = ": Cannot find field.";
  std::string text = status.message().ToString();
  std::replace(text.begin(), text.end(), '\n', ' ');
  text.erase(text.find_last_not_of(' ') + 1);
  ErrorContext context{.file = file, .where = {}, .found = {}, .expected = "as in plan.proto"};
  const std::size_t close = text.find(')');
  if (text.starts_with('(') && close != std::string::npos) {
    context.where = text.substr(1, close - 1);
    text.erase(0, text.find_first_not_of(": ", close + 1));
  }
  if (text.ends_with(kUnknownField)) {
    text.resize(text.size() - kUnknownField.size());
    context.found = fmt::format("unknown field '{}'", text);
    context.expected = "the fields of plan.proto";
  } else {
    context.found = text;
  }
  return context;
}

v1::Plan parse_json(std::string_view content, const std::string& file) {
  check_syntax(content, file);
  const google::protobuf::StringPiece text(content.data(), content.size());
  v1::Plan message;
  google::protobuf::util::JsonParseOptions options;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &message, options);
  if (!status.ok()) {
    // A newer plan has fields that this program does not know; its version is the better answer.
    v1::Plan lenient;
    options.ignore_unknown_fields = true;
    if (google::protobuf::util::JsonStringToMessage(text, &lenient, options).ok()) {
      check_version(lenient, file);
    }
    throw PlanError(json_complaint(status, file));
  }
  check_version(message, file);
  return message;
}

Plan parse_unverified(std::string_view content, const std::string& file) {
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    fail(file, {}, "nothing", "a plan as JSON or in binary form");
  }
  const v1::Plan message =
      content[first] == '{' ? parse_json(content, file) : parse_binary(content, file);
  try {
    return read_message(message);
  } catch (const Error& e) {
    if (!e.is_bad_input()) {
      throw;
    }
    ErrorContext context = e.context();
    context.file = file;
    throw PlanError(context);
  }
}

}  // namespace

void require_right(const Plan& plan, const topology::Topology* topology, const Workload* workload,
                   const std::string& file) {
  const VerifyReport report = verify(plan, topology, workload);
  if (!report.ok()) {
    const std::size_t more = report.problems.size() - 1;
    fail(file, {},
         report.problems.front() +
             (more == 0 ? std::string() : fmt::format(" (and {} more problems)", more)),
         "a plan that verifies");
  }
}

std::string to_json(const Plan& plan) {
  v1::Plan message;
  write_message(plan, message);
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text, options);
  if (!status.ok()) {
    throw PlanError(json_complaint(status, fmt::format("plan '{}'", plan.name)));
  }
  return with_compact_lists(text);
}

std::string to_binary(const Plan& plan) {
  v1::Plan message;
  write_message(plan, message);
  std::string bytes = serialized(message);
  bytes += checksum_field(bytes);
  return bytes;
}

std::string digest(const Plan& plan) { return sha256_hex(to_binary(plan)); }

Plan parse_plan(std::string_view content, const std::string& file) {
  Plan plan = parse_unverified(content, file);
  require_right(plan, nullptr, nullptr, file);
  return plan;
}

Plan load_unverified(const std::filesystem::path& path) {
  return parse_unverified(read_file(path), path.string());
}

Plan load_plan(const std::filesystem::path& path, const topology::Topology* topology) {
  const std::string file = path.string();
  Plan plan = load_unverified(path);
  if (topology != nullptr && plan.cluster_digest != topology->digest()) {
    const auto name = [](const std::string& cluster, const std::string& digest) {
      return fmt::format("the cluster '{}' (digest {})", cluster, digest.substr(0, 12));
    };
    fail(file, {}, "a plan made for " + name(plan.cluster_name, plan.cluster_digest),
         "one made for " + name(topology->name(), topology->digest()));
  }
  require_right(plan, topology, nullptr, file);
  return plan;
}

void save_plan(const Plan& plan, const std::filesystem::path& path) {
  write_file_atomically(path, path.extension() == ".json" ? to_json(plan) : to_binary(plan));
}

}  // namespace rackrail::plan
