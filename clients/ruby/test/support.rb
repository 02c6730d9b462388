# The database of a test, and classes that all of them use.
$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "windlass"
require "global_id"

ActiveJob::Base.logger = nil
GlobalID.app = "app"
address = ENV.fetch("WINDLASS_CLIENT_DATABASE")
if address.start_with?("postgres")
  ActiveRecord::Base.establish_connection(address)
else
  ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: address.delete_prefix("sqlite://"), timeout: 30_000)
end
