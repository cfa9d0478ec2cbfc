#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.hpp"
#include "cli/session.hpp"
#include "runtime/coordinator/certificates.hpp"
#include "runtime/coordinator/tls.hpp"

namespace rackrail::cli {
namespace {

constexpr int kMostDays = 3650;

struct CertificatesOptions {
  std::string output;
  int days = 30;
};

void run_certificates(const Session& session, const CertificatesOptions& options) {
  const std::filesystem::path given = std::filesystem::absolute(options.output).lexically_normal();
  const std::string folder = (given.has_filename() ? given : given.parent_path()).string();
  runtime::make_certificates(folder, options.days);
  if (session.json) {
    session.print_json({{"folder", folder}, {"days", options.days}});
    return;
  }
  fmt::print(
      "wrote  {0}/ca.pem, cert.pem and key.pem, valid for {1} days\n"
      "next   copy the folder to every host of the job (key.pem is a secret), and set there\n"
      "       {2}={0}\n",
      folder, options.days, runtime::kTlsVariable);
}

}  // namespace

void add_certificates_command(CLI::App& app, Session& session) {
  CLI::App* command = app.add_subcommand(
      "certificates", "Make the certificates that encrypt the connections to a job's coordinator");
  add_common_options(*command, session);
  const auto options = std::make_shared<CertificatesOptions>();
  command->add_option("-o,--output", options->output, "Folder to write them to")->required();
  command->add_option("--days", options->days, "How long they are valid")
      ->check(CLI::Range(1, kMostDays))
      ->capture_default_str();
  command->footer(
      "All processes of a job use the same folder. What they encrypt is the connection to the\n"
      "coordinator, not gradients.\nExample: rackrail certificates -o certificates");
  command->callback([&session, options] {
    session.command = "certificates";
    run_certificates(session, *options);
  });
}

}  // namespace rackrail::cli
