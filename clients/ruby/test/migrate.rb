# Migrates the database as a migration of Rails does, twice, and prints how many items were made.
require_relative "support"

class AddWindlass < ActiveRecord::Migration[6.1]
  def up = puts(Windlass::Schema.migrate(connection).size)
end

ActiveRecord::Migration.suppress_messages { 2.times { AddWindlass.new.exec_migration(ActiveRecord::Base.connection, :up) } }
