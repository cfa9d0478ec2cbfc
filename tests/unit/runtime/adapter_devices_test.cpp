#include "runtime/adapter_devices.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace rackrail::runtime::adapter_devices_test {
namespace {

namespace fs = std::filesystem;

/// A machine of its own: what /sys/class is of it.
class System {
 public:
  System() : root_(fs::temp_directory_path() / ("rackrail-system-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~System() { fs::remove_all(root_); }
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  void add(const std::string& kind, const std::string& device, const std::string& address) {
    fs::create_directories(root_ / kind / device);
    fs::create_symlink("../../../../devices/pci0000:00/" + address,
                       root_ / kind / device / "device");
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

}  // namespace

TEST_CASE("adapter devices: by the names that the plan has for them") {
  const AdapterDevices here({"lo", "eth0", "eth1", "mlx5_0:1", "mlx5_1:1", "mlx5_1:2"}, "",
                            "/nowhere");
  CHECK(here.find("nic1", "eth1") == "eth1");
  CHECK(here.find("nic1", "eth7 mlx5_0 nic0.1") == "mlx5_0:1");
  CHECK(here.find("nic1", "mlx5_1") == "mlx5_1:1,mlx5_1:2");
  CHECK(here.find("nic1", "mlx5_1:2") == "mlx5_1:2");
  CHECK_FALSE(here.find("nic1", "nic0.1").has_value());
  CHECK_FALSE(here.find("nic1", "").has_value());
  CHECK_FALSE(here.find("nic1", "mlx5").has_value());
}

TEST_CASE("adapter devices: by their places on the bus, all that are there") {
  System system;
  system.add("net", "ens1f0", "0000:1b:00.0");
  system.add("infiniband", "mlx5_9", "0000:1b:00.0");
  system.add("net", "ens2", "0000:3b:00.0");
  const AdapterDevices here({"ens1f0", "ens2", "mlx5_9:1"}, "", system.root());
  CHECK(here.find("nic0", "mlx5_0 0000:1b:00.0") == "ens1f0,mlx5_9:1");
  CHECK(here.find("nic0", "3B:00.0") == "ens2");
  CHECK(here.find("nic0", "ens2 0000:1b:00.0") == "ens2");  // a name says more than a place
  CHECK_FALSE(here.find("nic0", "0000:5b:00.0").has_value());
}

TEST_CASE(
    "adapter devices: what the user says of names overrules what is found, of numbers it does "
    "not") {
  const AdapterDevices here({"eth0", "eth1", "mlx5_1:1"}, "nic0=eth1,eth7=mlx5_1,nic2=tap3",
                            "/nowhere");
  CHECK(here.find("nic0", "eth0") == "eth0");  // numbers change when an adapter is lost
  CHECK(here.find("nic0", "eth8") == "eth1");
  CHECK(here.find("nic1", "eth7") == "mlx5_1:1");
  CHECK(here.find("nic2", "") == "tap3");  // seen by nobody yet: UCX is asked
  CHECK(here.find("nic3", "eth0") == "eth0");
  for (const char* wrong : {"nic0", "=eth0", "nic0=", "nic0=eth0,,nic1=eth1"}) {
    CHECK_THROWS_AS(AdapterDevices({}, wrong), ConfigError);
  }
}

}  // namespace rackrail::runtime::adapter_devices_test
