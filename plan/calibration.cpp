#include "plan/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/parse_units.hpp"

namespace rackrail::plan {

namespace {

constexpr int kMostCores = 65536;

class Fields {
 public:
  /// `prefix` is the place of the object in the file: "codecs.".
  Fields(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const nlohmann::json& at(const std::string& name) const {
    if (!object_.is_object() || !object_.contains(name)) {
      throw error(name, "nothing", "a calibration's '" + name + "'");
    }
    return object_.at(name);
  }
  ConfigError error(const std::string& name, const std::string& found,
                    const std::string& expected) const {
    return ConfigError(ErrorContext{file_, prefix_ + name, found, expected});
  }
  std::string text(const std::string& name) const {
    const nlohmann::json& value = at(name);
    if (!value.is_string()) {
      throw error(name, value.dump(), "text with a unit");
    }
    return value.get<std::string>();
  }
  double number(const std::string& name) const {
    const nlohmann::json& value = at(name);
    if (!value.is_number()) {
      throw error(name, value.dump(), "a number");
    }
    return value.get<double>();
  }
  template <typename Parse>
  auto quantity(const std::string& name, Parse parse) const {
    try {
      return parse(text(name));
    } catch (const ConfigError& wrong) {
      throw error(name, wrong.context().found, wrong.context().expected);
    }
  }
  bool has(const std::string& name) const { return object_.is_object() && object_.contains(name); }
  Bandwidth rate(const std::string& name) const {
    const Bandwidth value = quantity(name, parse_bandwidth);
    if (value.bytes_per_second() <= 0) {
      throw error(name, "'" + text(name) + "'", "a positive rate");
    }
    return value;
  }
  Duration duration(const std::string& name) const {
    const Duration value = quantity(name, parse_duration);
    if (value < Duration()) {
      throw error(name, "'" + text(name) + "'", "a duration that is not negative");
    }
    return value;
  }
  Fields inside(const std::string& name) const { return {at(name), file_, prefix_ + name + "."}; }

 private:
  const nlohmann::json& object_;
  std::string file_;
  std::string prefix_;
};

template <typename Rates>
auto& rate_of(Rates& rates, const Codec& codec) {
  return rates.codecs[static_cast<std::size_t>(codec.kind)];
}

bool is_required(const Codec& codec) {
  const auto tried = known_codecs();
  return std::find(tried.begin(), tried.end(), codec) != tried.end();
}

}  // namespace

std::string to_json(const Calibration& calibration) {
  nlohmann::json codecs = nlohmann::json::object();
  for (const Codec& codec : all_codecs()) {
    if (codec.is_lossy()) {
      const CodecRate& rate = rate_of(calibration.rates, codec);
      codecs[to_string(codec)] = {{"encode", to_exact_string(rate.encode)},
                                  {"decode", to_exact_string(rate.decode)}};
    }
  }
  const nlohmann::json file = {{"cores", calibration.cores},
                               {"core_bandwidth", to_exact_string(calibration.core_bandwidth)},
                               {"message_overhead", to_exact_string(calibration.message_overhead)},
                               {"latency", to_exact_string(calibration.latency)},
                               {"codecs", codecs},
                               {"reduce", to_exact_string(calibration.rates.reduce)},
                               {"launch", to_exact_string(calibration.rates.launch)},
                               {"transport", calibration.transport},
                               {"load", calibration.load}};
  return file.dump(2) + "\n";
}

Calibration read_calibration(const std::filesystem::path& path) {
  const nlohmann::json file = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!file.is_object()) {
    throw ConfigError(ErrorContext{path.string(), "", "no JSON object",
                                   "a file that 'rackrail calibrate' wrote"});
  }
  const Fields fields(file, path.string());
  Calibration calibration;
  const double cores = fields.number("cores");
  if (!(cores >= 1 && cores <= kMostCores && cores == std::floor(cores))) {
    throw fields.error("cores", fields.at("cores").dump(),
                       fmt::format("a whole number from 1 to {}", kMostCores));
  }
  calibration.cores = static_cast<std::size_t>(cores);
  calibration.core_bandwidth = fields.rate("core_bandwidth");
  calibration.message_overhead = fields.duration("message_overhead");
  calibration.latency = fields.duration("latency");
  calibration.rates.reduce = fields.rate("reduce");
  calibration.rates.launch = fields.duration("launch");
  const Fields codecs = fields.inside("codecs");
  calibration.rates.codecs = device_rates("cpu").codecs;
  for (const Codec& codec : all_codecs()) {
    const std::string name = to_string(codec);
    if (codec.is_lossy() && (is_required(codec) || codecs.has(name))) {
      const Fields fields_of_codec = codecs.inside(name);
      rate_of(calibration.rates, codec) = {fields_of_codec.rate("encode"),
                                           fields_of_codec.rate("decode")};
    }
  }
  calibration.transport = fields.text("transport");
  calibration.load = fields.number("load");
  return calibration;
}

topology::MeasuredProcessor measured_processor(const Calibration& calibration) {
  topology::MeasuredProcessor processor;
  for (const Codec& codec : all_codecs()) {
    const CodecRate& rate = rate_of(calibration.rates, codec);
    if (codec.is_lossy()) {
      processor.codecs[to_string(codec)] = {rate.encode, rate.decode};
    }
  }
  processor.reduce = calibration.rates.reduce;
  processor.launch = calibration.rates.launch;
  return processor;
}

}  // namespace rackrail::plan
