#include "runtime/coordinator/tls.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "base/file.hpp"
#include "runtime/coordinator/certificates.hpp"
#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/inquiry.hpp"
#include "runtime/coordinator/server.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::tls_test {
namespace {

using std::filesystem::path;

void require_openssl(const std::string& arguments) {
  REQUIRE(std::system(("openssl " + arguments + " 2>/dev/null").c_str()) == 0);
}

/// An authority in a folder of its own.
path make_authority(const path& folder) {
  create_directories(folder);
  require_openssl(
      "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test "
      "-days 2 -keyout " +
      (folder / "ca.key").string() + " -out " + (folder / "ca.pem").string());
  return folder;
}

/// A certificate with this DNS name that the authority has signed, as read_tls wants it.
path make_certificate(const path& folder, const path& authority, const std::string& name) {
  create_directories(folder);
  const auto in = [&](const char* file) { return (folder / file).string(); };
  require_openssl("req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=" + name +
                  " -keyout " + in("key.pem") + " -out " + in("request.pem"));
  write_file_atomically(folder / "names", "subjectAltName=DNS:" + name + "\n");
  require_openssl("x509 -req -days 1 -in " + in("request.pem") + " -CA " +
                  (authority / "ca.pem").string() + " -CAkey " + (authority / "ca.key").string() +
                  " -CAcreateserial -extfile " + in("names") + " -out " + in("cert.pem"));
  copy_file(authority / "ca.pem", folder / "ca.pem");
  permissions(folder / "key.pem", std::filesystem::perms::owner_read);
  return folder;
}

bool has_openssl() { return std::system("openssl version > /dev/null 2>&1") == 0; }

std::string refusal(const path& folder) {
  try {
    read_tls(folder);
  } catch (const Error& error) {
    CHECK(error.is_bad_input());
    return error.what();
  }
  return "";
}

CoordinatorOptions one_worker(const path& certificates) {
  CoordinatorOptions options;
  options.token = "secret-of-the-test";
  options.tls = read_tls(certificates);
  options.membership.world_size = 1;
  options.membership.version = "test";
  options.membership.heartbeat_timeout = 10_s;
  return options;
}

/// Why a worker could not join; empty where it could.
std::string why_not(const CoordinatorServer& server, const std::optional<TlsCertificates>& tls,
                    Duration deadline) {
  try {
    CoordinatorClient client(
        server.address(), "secret-of-the-test", [](const std::string&) {}, tls);
    const Welcome welcome = client.join({.address = {std::byte{1}}, .version = "test"}, deadline);
    client.report_result("done");
    client.leave(true);
    return welcome.world_size == 1 ? "" : "another world";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("certificates: what cannot work is said with its file") {
  if (!has_openssl()) {
    RACKRAIL_SKIP("the openssl command, which makes the test's certificates, is not installed");
  }
  const rackrail::test::TemporaryDirectory folder;
  const path ours = make_authority(folder.path() / "ours");
  const path theirs = make_authority(folder.path() / "theirs");
  const path good = make_certificate(folder.path() / "good", ours, "worker");
  CHECK(refusal(good).empty());
  using Catch::Contains;
  CHECK_THAT(refusal(folder.path()), Contains("ca.pem"));

  const path other = make_certificate(folder.path() / "other", ours, "worker");
  copy_file(theirs / "ca.pem", other / "ca.pem", std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(refusal(other), Contains("cert.pem") && Contains("ca.pem beside it has signed"));

  const path mixed = make_certificate(folder.path() / "mixed", ours, "worker");
  permissions(mixed / "key.pem", std::filesystem::perms::owner_all);
  copy_file(good / "key.pem", mixed / "key.pem", std::filesystem::copy_options::overwrite_existing);
  CHECK_THAT(refusal(mixed), Contains("key.pem") && Contains("another certificate"));

  permissions(good / "key.pem", std::filesystem::perms::others_read);
  CHECK_THAT(refusal(good), Contains("key.pem") && Contains("mode 600"));
  permissions(good / "key.pem", std::filesystem::perms::owner_all);
  write_file_atomically(good / "key.pem", "nonsense");
  permissions(good / "key.pem", std::filesystem::perms::owner_read);
  CHECK_THAT(refusal(good), Contains("no private key"));
  write_file_atomically(good / "cert.pem", "nonsense");
  CHECK_THAT(refusal(good), Contains("cert.pem") || Contains("key.pem"));
}

TEST_CASE("certificates: only workers that the same authority has signed may come", "[slow]") {
  if (!has_openssl()) {
    RACKRAIL_SKIP("the openssl command, which makes the test's certificates, is not installed");
  }
  const rackrail::test::TemporaryDirectory folder;
  const path ours = make_authority(folder.path() / "ours");
  const path theirs = make_authority(folder.path() / "theirs");
  const path leader = make_certificate(folder.path() / "leader", ours, kCoordinatorTlsName);
  const path worker = make_certificate(folder.path() / "worker", ours, "worker");
  const path stranger = make_certificate(folder.path() / "stranger", theirs, "worker");
  {
    CoordinatorServer server(one_worker(leader));
    // Says so as soon as it was refused, and not when nobody has answered for long.
    const auto start = std::chrono::steady_clock::now();
    CHECK_THAT(why_not(server, read_tls(stranger), 60_s),
               Catch::Contains(kTlsVariable) && Catch::Contains("do not fit"));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    CHECK_THAT(why_not(server, {}, 1_s), Catch::Contains("no coordinator answered"));
    const auto ask = [&](const std::optional<TlsCertificates>& tls) {
      return ask_for_status({.coordinator = server.address(),
                             .token = "secret-of-the-test",
                             .token_source = {},
                             .tls = tls});
    };
    CHECK_THROWS_AS(ask(read_tls(stranger)), RuntimeFailure);
    CHECK_THROWS_AS(ask({}), RuntimeFailure);
    CHECK(ask(read_tls(worker)).progress.world_size == 1);
    CHECK(why_not(server, read_tls(worker), 30_s).empty());
  }
  // A worker's certificate does not make a coordinator.
  CoordinatorServer impostor(one_worker(worker));
  CHECK_THAT(why_not(impostor, read_tls(worker), 60_s), Catch::Contains(kCoordinatorTlsName));
  // Where nobody is, somebody may still come.
  const HostPort nobody = {"127.0.0.1", 1};
  CoordinatorClient client(
      nobody, "", [](const std::string&) {}, read_tls(worker));
  CHECK_THROWS_WITH(client.join({.address = {std::byte{1}}, .version = "test"}, 2_s),
                    Catch::Contains("no coordinator answered") && Catch::Contains("over TLS"));
}

TEST_CASE("certificates that rackrail makes are what it wants, and are never replaced") {
  const rackrail::test::TemporaryDirectory folder;
  const path made = folder.path() / "of a job" / "certificates";
  make_certificates(made, 2);
  CHECK(refusal(made).empty());
  using std::filesystem::perms;
  CHECK((status(made / "key.pem").permissions() & (perms::group_all | perms::others_all)) ==
        perms::none);
  CHECK((status(made).permissions() & (perms::group_all | perms::others_all)) == perms::none);
  const TlsCertificates before = read_tls(made);
  CHECK_THROWS_WITH(make_certificates(made, 2), Catch::Contains("key.pem"));
  CHECK(read_tls(made).key == before.key);
  {
    CoordinatorServer server(one_worker(made));
    CHECK(why_not(server, read_tls(made), 60_s).empty());
  }
  // Of another job, though the names in it are the same.
  make_certificates(folder.path() / "another", 2);
  CoordinatorServer server(one_worker(made));
  CHECK_THAT(why_not(server, read_tls(folder.path() / "another"), 60_s),
             Catch::Contains("do not fit"));
}

TEST_CASE("a job's secret crosses a network only with certificates, or where somebody allows it") {
  const char* given = std::getenv(kInsecureVariable);
  const std::string before = given != nullptr ? given : "";
  unsetenv(kInsecureVariable);
  const HostPort elsewhere{"node-7", 29500};
  CHECK_THROWS_WITH(require_private(elsewhere, std::nullopt),
                    Catch::Contains("in clear") && Catch::Contains("node-7:29500") &&
                        Catch::Contains("rackrail certificates") &&
                        Catch::Contains(kInsecureVariable));
  CHECK_NOTHROW(require_private(elsewhere, TlsCertificates{}));
  CHECK_NOTHROW(require_private({"127.0.0.1", 29500}, std::nullopt));
  CoordinatorOptions options;
  options.token = "secret-of-the-test";
  options.listen.host = "0.0.0.0";
  CHECK_THROWS_WITH(CoordinatorServer(options), Catch::Contains("in clear"));
  CHECK_THROWS_WITH(
      ask_for_status({.coordinator = elsewhere, .token = "secret-of-the-test", .token_source = {}}),
      Catch::Contains("in clear"));
  options.is_network_private = true;
  CHECK_NOTHROW(CoordinatorServer(options));
  setenv(kInsecureVariable, "0", 1);
  CHECK_THROWS_AS(require_private(elsewhere, std::nullopt), ConfigError);
  setenv(kInsecureVariable, "1", 1);
  CHECK_NOTHROW(require_private(elsewhere, std::nullopt));
  unsetenv(kInsecureVariable);
  if (given != nullptr) {
    setenv(kInsecureVariable, before.c_str(), 1);
  }
}

}  // namespace rackrail::runtime::tls_test
