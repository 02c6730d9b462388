# frozen_string_literal: true

# Connects Active Record to the database of a test, and loads the gem from this repository.

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "active_record"
require "windlass"

ActiveJob::Base.logger = nil
Time.zone = "UTC"

def connect(address)
  is_postgres = address.start_with?("postgres")
  ActiveRecord::Base.establish_connection(is_postgres ? address : { adapter: "sqlite3", database: address, timeout: 30_000 })
  ActiveRecord::Base.connection
end
